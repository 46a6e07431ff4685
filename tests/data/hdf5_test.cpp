#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/hdf5.hpp>

#include <array>
#include <cmath>
#include <thread>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

// A file with data sets of several types, nested, chunked and packed.
std::filesystem::path sample_file(const temporary_folder& folder) {
    const auto path = folder.path() / "sample.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const auto write = [&](const char* name, std::vector<hsize_t> extents, hid_t stored, hid_t memory, const void* data,
                           bool packed) {
        const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
        const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
        if (packed) {
            std::vector<hsize_t> chunk(extents.size(), 2);
            H5Pset_chunk(how, static_cast<int>(chunk.size()), chunk.data());
            H5Pset_deflate(how, 6);
        }
        const hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, how, H5P_DEFAULT);
        H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        H5Dclose(set);
        H5Pclose(how);
        H5Sclose(space);
    };
    H5Gclose(H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    std::vector<float> x(4 * 3 * 5);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.5f;
    write("x", {4, 3, 5}, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, x.data(), false);
    write("group/packed", {4, 3, 5}, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, x.data(), true);
    const std::vector<std::int64_t> labels{3, -1, 2, 1};
    write("labels", {4}, H5T_STD_I64LE, H5T_NATIVE_INT64, labels.data(), false);
    const std::vector<std::int64_t> wide{3, std::int64_t{1} << 40};
    write("wide", {2}, H5T_STD_I64LE, H5T_NATIVE_INT64, wide.data(), false);
    const hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 4);
    write("text", {1}, text, text, "abc", false);
    H5Tclose(text);
    // Large extents, nothing written.
    {
        const hsize_t huge[2]{hsize_t{1} << 30, hsize_t{1} << 30}, chunk[2]{64, 64};
        const hid_t space = H5Screate_simple(2, huge, nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(how, 2, chunk);
        H5Dclose(H5Dcreate2(file, "unwritten", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
        H5Pclose(how);
        H5Sclose(space);
    }
    H5Fclose(file);
    return path;
}

}  // namespace

TEST_CASE("hdf5: floats and integers, contiguous and packed, whole and by rows", "[hdf5]") {
    const temporary_folder folder;
    const hdf5_file file(sample_file(folder));
    REQUIRE(file.datasets() == std::vector<std::string>{"group/packed", "labels", "text", "unwritten", "wide", "x"});
    REQUIRE(file.shape("x") == shape{4, 3, 5});
    for (const char* name : {"x", "group/packed"}) {
        const auto x = file.read<float>(name);
        const auto d = file.read<double>(name);
        REQUIRE(x.shape() == shape{4, 3, 5});
        for (index_t i = 0; i < x.size(); ++i) {
            REQUIRE(x[i] == static_cast<float>(i) * 0.5f);
            REQUIRE(d[i] == static_cast<double>(i) * 0.5);
        }
        const auto rows = file.read_rows<float>(name, 1, 2);
        REQUIRE(rows.shape() == shape{2, 3, 5});
        for (index_t i = 0; i < rows.size(); ++i) REQUIRE(rows[i] == static_cast<float>(i + 15) * 0.5f);
        REQUIRE(file.read_rows<float>(name, 4, 0).size() == 0);
    }
    const auto labels = file.read<std::int32_t>("labels");
    REQUIRE(labels[1] == -1);
    REQUIRE(file.read<float>("labels")[0] == 3);
    REQUIRE(file.read<std::int64_t>("wide")[1] == std::int64_t{1} << 40);
}

TEST_CASE("hdf5: boxes are those of the whole", "[hdf5]") {
    const temporary_folder folder;
    const hdf5_file file(sample_file(folder));
    const auto whole = file.read<double>("x");
    for (const char* name : {"x", "group/packed"})
        for (index_t a = 0; a <= 4; ++a)
            for (index_t b = 0; b < 3; ++b)
                for (index_t c = 0; c < 5; ++c) {
                    const shape count{(4 - a) / 2, 3 - b, c == 4 ? 0 : (5 - c + 1) / 2};
                    const auto box = file.read_box<double>(name, std::array<index_t, 3>{a, b, c}, count);
                    REQUIRE(box.shape() == count);
                    for (index_t i = 0; i < count[0]; ++i)
                        for (index_t j = 0; j < count[1]; ++j)
                            for (index_t k = 0; k < count[2]; ++k) REQUIRE(box(i, j, k) == whole(a + i, b + j, c + k));
                }
    REQUIRE(file.read_box<std::int32_t>("labels", std::array<index_t, 1>{1}, {2})[0] == -1);
    REQUIRE_THAT(message_of([&] {
                     file.read_box<float>("x", std::array<index_t, 3>{1, 1, 0}, {2, 3, 5});
                 }),
                 Contains("data set 'x': a box of shape (2, 3, 5) from 1 on axis 1 does not lie within (4, 3, 5)"));
    REQUIRE_THAT(message_of([&] {
                     file.read_box<float>("x", std::array<index_t, 2>{0, 0}, {2, 3});
                 }),
                 Contains("a box of 2 axes"));
    REQUIRE_THAT(message_of([&] {
                     file.read_box<float>("x", std::array<index_t, 3>{-1, 0, 0}, {2, 3, 5});
                 }),
                 Contains("from -1 on axis 0"));
}

TEST_CASE("hdf5: errors name file, data set and what is there", "[hdf5]") {
    const temporary_folder folder;
    const auto path = sample_file(folder);
    const hdf5_file file(path);
    REQUIRE_THAT(
        message_of([&] { file.read<float>("y"); }),
        Contains("sample.h5: data set 'y': not there; there are: group/packed, labels, text, unwritten, wide, x"));
    REQUIRE_THAT(message_of([&] { file.read<float>("group"); }), Contains("data set 'group': not there"));
    REQUIRE_THAT(message_of([&] { file.read<float>("text"); }), Contains("neither integers nor floating-point"));
    REQUIRE_THAT(message_of([&] { file.read<std::int32_t>("wide"); }), Contains("element 1 is 1099511627776"));
    REQUIRE_THAT(message_of([&] { file.read<std::int32_t>("x"); }), Contains("integers are asked for"));
    REQUIRE_THAT(message_of([&] { file.read<float>("unwritten"); }),
                 Contains("0 bytes are stored") && Contains("cannot be there"));
    REQUIRE_THAT(message_of([&] { file.read_rows<float>("x", 3, 2); }), Contains("rows 3 to 5 of shape (4, 3, 5)"));
    REQUIRE_THAT(message_of([] { hdf5_file("/nowhere/x.h5"); }), Contains("no such file"));
    REQUIRE_THAT(message_of([&] { hdf5_file(folder.write("no.h5", "this is text")); }),
                 Contains("no.h5: not an HDF5 file") && Contains("signature"));
    REQUIRE_THAT(message_of([&] { hdf5_file(folder.write("empty.h5", "")); }), Contains("empty.h5: not an HDF5 file"));
}

TEST_CASE("hdf5: a filter that the library does not have is named", "[hdf5]") {
    const temporary_folder folder;
    const auto path = folder.path() / "lzf.h5";
    const H5Z_class2_t lzf{
        H5Z_CLASS_T_VERS,
        32000,
        1,
        1,
        "lzf",
        nullptr,
        nullptr,  // as h5py registers it
        [](unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*, void**) { return bytes; }};
    REQUIRE(H5Zregister(&lzf) >= 0);
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t extent = 4, chunk = 2;
    const hid_t space = H5Screate_simple(1, &extent, nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(how, 1, &chunk);
    H5Pset_filter(how, lzf.id, H5Z_FLAG_OPTIONAL, 0, nullptr);
    const hid_t set = H5Dcreate2(file, "maps", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT);
    const std::array<float, 4> x{1, 2, 3, 4};
    H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x.data());
    for (const auto close : {H5Dclose(set), H5Pclose(how), H5Sclose(space), H5Fclose(file)}) REQUIRE(close >= 0);

    CHECK(hdf5_file(path).read<float>("maps")[3] == 4);
    REQUIRE(H5Zunregister(lzf.id) >= 0);
    const hdf5_file unreadable(path);
    CHECK(unreadable.shape("maps") == shape{4});
    CHECK_THAT(message_of([&] { unreadable.read<float>("maps"); }),
               Contains("lzf.h5: data set 'maps': compressed by the filter lzf (32000)") &&
                   Contains("h5repack -f GZIP=4 " + path.string()));
}

TEST_CASE("hdf5: a truncated file is refused, wherever it was cut", "[hdf5]") {
    const temporary_folder folder;
    const auto whole = read_bytes(sample_file(folder));
    for (std::size_t n = 0; n < whole.size(); n += 97)
        REQUIRE_FALSE(message_of([&] {
                          hdf5_file file(folder.write("cut.h5", std::span(whole).first(n)));
                          file.read<float>("group/packed");
                          file.read<float>("x");
                      }).empty());
}

TEST_CASE("hdf5: many threads take turns", "[hdf5]") {
    const temporary_folder folder;
    const hdf5_file file(sample_file(folder));
    std::atomic<int> wrong{0};
    std::vector<std::thread> readers;
    for (int t = 0; t < 4; ++t)
        readers.emplace_back([&] {
            for (int i = 0; i < 50; ++i)
                if (file.read_rows<float>("group/packed", i % 4, 1)[0] != static_cast<float>(i % 4) * 7.5f) ++wrong;
        });
    for (auto& r : readers) r.join();
    REQUIRE(wrong == 0);
}

}  // namespace cairn::test
