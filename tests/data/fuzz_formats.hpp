#pragma once
// Every parser with a few small valid files, for fuzzing. A parser may read its input or throw cairn::error; nothing
// else.

#include "data/fuzz_json_formats.hpp"
#include "data/netcdf_files.hpp"
#include "data/numpy2_pickles.hpp"
#include "data/pickles.hpp"
#include "state/fuzz_state_formats.hpp"

#include <cairn/data/archive.hpp>
#include <cairn/data/cifar.hpp>
#include <cairn/data/csv.hpp>
#include <cairn/data/idx.hpp>
#include <cairn/data/image_jpeg.hpp>
#include <cairn/data/image_png.hpp>
#include <cairn/data/netcdf.hpp>
#include <cairn/data/nifti.hpp>
#include <cairn/data/npz.hpp>
#include <cairn/data/planetoid.hpp>

#include <functional>

namespace cairn::test {

struct fuzz_format {
    std::string name;
    std::vector<bytes> seeds;
    std::function<void(const bytes&)> parse;
};

inline bytes text_bytes(std::string_view text) { return {text.begin(), text.end()}; }

inline std::vector<fuzz_format> fuzz_formats() {
    const std::vector<float> six{1, 2, 3, 4, 5, 6};
    const bytes npy = npy_file("<f4", "(2, 3)", elements_of(six));
    const image small = picture(21, 34);
    std::vector<fuzz_format> all;
    all.push_back({"idx",
                   {idx_file({2, 3, 4}, counting(24)),
                    idx_file({6}, elements_of<float>({1, 2, 3, 4, 5, 6}, std::endian::big), 0x0d),
                    idx_file({3, 2}, elements_of<std::int16_t>({1, 2, 3, 4, 5, 6}, std::endian::big), 0x0b)},
                   [](const bytes& b) { parse_idx(b, "x.idx").to_tensor<float>(); }});
    all.push_back({"gzip", {gzipped(counting(300)), gzipped(bytes(100000)), gzipped({})}, [](const bytes& b) {
                       gunzip(b, "x.gz", std::size_t{1} << 24);
                   }});
    all.push_back(
        {"npy",
         {npy, npy_file(">f8", "(2, 1, 2)", elements_of<double>({1, 2, 3, 4}, std::endian::big), true, 2),
          npy_file("<i8", "(4,)", elements_of<std::int64_t>({1, -2, 3, 4}), false, 3), npy_file("|b1", "()", bytes{1})},
         [](const bytes& b) { parse_npy(b, "x.npy").to_tensor<float>(); }});
    all.push_back({"npz",
                   {zip_file({{"x.npy", npy}, {"y.npy", npy}}, true), zip_file({{"x.npy", npy}}, false, true)},
                   [](const bytes& b) {
                       const npz_file npz(b, "x.npz");
                       for (const std::string& name : npz.names()) npz.read(name).to_tensor<float>();
                   }});
    all.push_back(
        {"nifti",
         {nifti_file({}, counting(24)), gzipped(nifti_file({}, counting(24))),
          nifti_file(
              {.dim = {2, 2, 1, 2}, .datatype = 16, .bitpix = 32, .order = std::endian::big, .slope = 2, .inter = 1},
              elements_of<float>({1, 2, 3, 4, 5, 6, 7, 8}, std::endian::big))},
         [](const bytes& b) { parse_maybe_gzip_nifti(b, "x.nii").to_tensor(); }});
    netcdf_content stream = small_netcdf(2);
    stream.streaming = true;
    all.push_back({"netcdf",
                   {netcdf_bytes(small_netcdf(1)), netcdf_bytes(stream), netcdf_bytes(small_netcdf(5))},
                   [](const bytes& b) {
                       const netcdf_file file(b, "x.nc");
                       for (const netcdf_variable& v : file.variables()) {
                           file.read<double>(v.name);
                           if (v.type != netcdf_type::text) file.read_unpacked<float>(v.name);
                       }
                   }});
    all.push_back(
        {"pickle",
         {pickled_csr({{1, 0, 2}, {0, 0, 0}, {0, 3, 0}}, 3),
          pickled_array({2, 3}, "i4", elements_of<std::int32_t>({1, 0, 0, 0, 1, 0})),
          pickled_graph({{0, {1, 2}}, {1, {0}}, {2, {}}}), of_hexadecimal(numpy2_arrays[0]),
          of_hexadecimal(numpy2_arrays[5]), of_hexadecimal(numpy2_matrices[2]), of_hexadecimal(numpy2_graphs[4])},
         [](const bytes& b) {
             const pickle_tree p = parse_pickle(b, "x.pickle");
             if (p.is_object(p.root(), "csr_matrix")) detail::csr_of_pickle(p);
             if (p.is_array(p.root())) p.array(p.root()).to_tensor<float>();
             for (const int i : p.root().items)
                 if (p.is_object(p[i], "scalar")) p.integer(p[i], "a number");
         }});
    all.push_back(
        {"csv",
         {text_bytes("a,b\n1,2\n-3e4,5\r\n"), text_bytes("\xef\xbb\xbf\"a \"\"\",\"b\r\nc\"\r+1e-400,\" 2\"\r")},
         [](const bytes& b) {
             parse_csv({reinterpret_cast<const char*>(b.data()), b.size()}, "x.csv");
         }});
    const std::vector<std::pair<std::string, bytes>> members{
        {"top/", {}}, {"top/a.bin", counting(700)}, {"top/b.bin", counting(30)}};
    all.push_back(
        {"tar", {tar_file(members), tar_file(members, "gzip"), tar_file(members, "zstd")}, [](const bytes& b) {
             read_archive(
                 b, "x.tar", [](const std::string&) { return true; }, std::uint64_t{1} << 24);
         }});
    all.push_back({"jpeg",
                   {jpeg_file(small), jpeg_file(small, {.progressive = true}), jpeg_file(small, {.subsampled = false}),
                    jpeg_file(picture(17, 9, 1, 1)), jpeg_file(picture(17, 9, 1, 4))},
                   [](const bytes& b) {
                       image out;
                       {
                           jpeg_decoder jpeg(b, "x.jpg");
                           const auto h = static_cast<double>(jpeg.height()), w = static_cast<double>(jpeg.width());
                           jpeg.decode({h / 4, w / 3, h / 2, w / 2}, 4, 4, out);
                       }
                       jpeg_decoder(b, "x.jpg").decode(out);
                   }});
    all.push_back({"png",
                   {png_file(small), png_file(picture(9, 7, 1, 1), PNG_FORMAT_GRAY),
                    png_file(picture(9, 7, 1, 4), PNG_FORMAT_RGBA)},
                   [](const bytes& b) {
                       image out;
                       decode_png(b, "x.png", out);
                   }});
    all.push_back({"pack", {small_pack()}, parse_fuzzed_pack});
    all.push_back({"manifest", {small_manifest_text()}, parse_fuzzed_manifest});
    all.push_back({"kept",
                   {small_kept_part({redundancy::partner}), small_kept_part({redundancy::parity, 1}),
                    small_kept_part({redundancy::parity, 2})},
                   parse_fuzzed_kept_part});
    all.push_back({"safetensors", {small_safetensors()}, parse_fuzzed_safetensors});
    all.push_back({"lineage", {small_lineage()}, parse_fuzzed_lineage});
    return all;
}

}  // namespace cairn::test
