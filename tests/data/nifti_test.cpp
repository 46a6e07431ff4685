#include "catch.hpp"
#include "data/writers.hpp"
#include "messages.hpp"

#include <cairn/data/nifti.hpp>

#include <limits>

namespace cairn::test {
namespace nifti_tests {

// Values 0, 1, 2, … stored as T, in the order of the file.
template <class T>
bytes file_of(std::int16_t datatype, std::endian order, float slope = 0, float inter = 0) {
    std::vector<T> values;
    for (int i = 0; i < 24; ++i) values.push_back(static_cast<T>(i));
    return nifti_file({.datatype = datatype,
                       .bitpix = static_cast<std::int16_t>(8 * sizeof(T)),
                       .order = order,
                       .slope = slope,
                       .inter = inter},
                      elements_of(values, order));
}

void require_counting(const bytes& file, double slope = 1, double inter = 0) {
    const nifti_volume v = parse_nifti(file, "x.nii");
    REQUIRE(v.shape == shape{4, 3, 2});
    REQUIRE(v.spacing == std::vector<double>{1.5, 1.5, 1.5});
    const tensor<float> t = v.to_tensor();
    REQUIRE(t.shape() == v.shape);
    for (index_t x = 0; x < 4; ++x)
        for (index_t y = 0; y < 3; ++y)
            for (index_t z = 0; z < 2; ++z)  // x is fastest in the file, slowest here
                REQUIRE(static_cast<double>(t[(x * 3 + y) * 2 + z]) ==
                        slope * static_cast<double>((z * 3 + y) * 4 + x) + inter);
}

std::string refusal(const nifti_file_options& o, const bytes& elements = counting(24)) {
    return message_of([&] { parse_nifti(nifti_file(o, elements), "brain.nii"); });
}

TEST_CASE("nifti: every type in both byte orders", "[nifti]") {
    for (const std::endian order : {std::endian::little, std::endian::big}) {
        require_counting(file_of<std::uint8_t>(2, order));
        require_counting(file_of<std::int16_t>(4, order));
        require_counting(file_of<std::int32_t>(8, order));
        require_counting(file_of<float>(16, order));
        require_counting(file_of<double>(64, order));
        require_counting(file_of<std::int8_t>(256, order));
        require_counting(file_of<std::uint16_t>(512, order));
        require_counting(file_of<std::uint32_t>(768, order));
        require_counting(file_of<std::int16_t>(4, order, 0.5f, -3), 0.5, -3);
    }
    // Not scaled, whatever the other field holds.
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const float slope : {0.0f, -0.0f, nan, inf, -inf})
        for (const float inter : {0.0f, 5.0f, nan, inf})
            require_counting(file_of<std::int16_t>(4, std::endian::little, slope, inter));
}

TEST_CASE("nifti: files, compressed or not, and axes", "[nifti]") {
    const temporary_folder folder;
    const bytes plain = nifti_file({.dim = {2, 3, 1, 2, 1, 1}}, counting(12));
    for (const auto& path : {folder.write("a.nii", plain), folder.write("b.nii.gz", gzipped(plain))}) {
        const nifti_volume v = read_nifti(path);
        REQUIRE(v.shape == shape{2, 3, 1, 2});  // the last two are nothing
        REQUIRE(v.to_tensor()[1] == 6.0f);      // (0, 0, 0, 1)
    }
    REQUIRE(parse_nifti(nifti_file({.dim = {5}}, counting(5)), "x").to_tensor()[4] == 4.0f);
    // Bytes between header and voxels, and behind the voxels, belong to others.
    bytes longer = nifti_file({.offset = 400}, counting(30));
    REQUIRE(parse_nifti(longer, "x").to_tensor()[(3 * 3 + 2) * 2 + 1] == 23.0f);
}

TEST_CASE("nifti: what is damaged or not read says so", "[nifti]") {
    const auto says = [](const std::string& message, std::initializer_list<const char*> parts) {
        INFO(message);
        for (const char* part : parts) CHECK(contains(message, part));
    };
    says(refusal({.magic = "nix"}), {"brain.nii", "byte 344", "magic", "fetch or save it again"});
    says(refusal({.magic = "ni1"}), {"brain.nii", ".hdr and .img", "one .nii file"});
    says(refusal({.datatype = 128, .bitpix = 24}), {"field datatype is 128", "convert"});
    says(refusal({.bitpix = 16}), {"field bitpix is 16"});
    says(refusal({.dim = {}}), {"field dim[0] is 0"});
    says(refusal({.dim = {4, -1, 2}}), {"field dim[2] is -1"});
    says(refusal({.dim = {1, 1, 1, 1, 1, 1, 2}}), {"7 axes", "at most 6"});
    says(refusal({.slope = 2, .inter = std::numeric_limits<float>::infinity()}), {"scl_inter is inf", "damaged"});
    says(refusal({.offset = 348}), {"field vox_offset is 348", "at least 352"});
    const bytes huge =
        nifti_file({.dim = {2}, .datatype = 64, .bitpix = 64}, elements_of<double>({1, 1e300}, std::endian::little));
    says(message_of([&] { parse_nifti(huge, "brain.nii").to_tensor(); }),
         {"brain.nii: element 1 is 1e+300, too large"});
    says(refusal({.dim = {4, 3, 3}}), {"truncated", "(4, 3, 3)", "36 bytes from byte 352", "byte 376"});
    says(refusal({.dim = {32767, 32767, 32767, 32767}}), {"cannot be there"});

    bytes file = nifti_file({}, counting(24));
    const auto of = [&] { return message_of([&] { parse_nifti(file, "brain.nii"); }); };
    file.resize(300);
    says(of(), {"brain.nii", "truncated at byte 300", "header"});
    file.resize(2);
    says(of(), {"truncated at byte 2", "sizeof_hdr"});
    file = counting(400);
    says(of(), {"sizeof_hdr", "not a NIfTI-1 file"});
    file = nifti_file({}, counting(24));
    file[0] = 0x1c, file[1] = 0x02;  // 540
    says(of(), {"NIfTI-2"});
    file = nifti_file({}, counting(24));
    file[108 + 3] = 0;  // vox_offset becomes a tiny number
    says(of(), {"field vox_offset"});
    const bytes cut = gzipped(nifti_file({}, counting(24)));
    says(message_of([&] { parse_maybe_gzip_nifti(std::span(cut).first(cut.size() - 20), "brain.nii.gz"); }),
         {"brain.nii.gz", "truncated"});
    says(message_of([] { read_nifti("/nowhere.nii"); }), {"/nowhere.nii", "no such file"});
}

}  // namespace nifti_tests
}  // namespace cairn::test
