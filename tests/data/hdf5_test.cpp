#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/hdf5.hpp>

#include <algorithm>
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
        const hsize_t huge[2]{hsize_t{1} << 28, hsize_t{1} << 20}, chunk[2]{64, 64};
        const hid_t space = H5Screate_simple(2, huge, nullptr), how = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(how, 2, chunk);
        H5Dclose(H5Dcreate2(file, "unwritten", H5T_IEEE_F32LE, space, H5P_DEFAULT, how, H5P_DEFAULT));
        H5Pclose(how);
        H5Sclose(space);
    }
    H5Fclose(file);
    return path;
}

// An identifier of the library, closed at the end of its scope.
struct handle_of {
    handle_of(hid_t of, herr_t (*how)(hid_t)) : id(of), close(how) {}
    handle_of(const handle_of&) = delete;
    ~handle_of() { close(id); }
    hid_t id;
    herr_t (*close)(hid_t);
};

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
    REQUIRE_THAT(message_of([&] { file.read<float>("text"); }),
                 Contains("floating-point numbers, but of class string"));
    REQUIRE_THAT(message_of([&] { file.read<std::int32_t>("wide"); }), Contains("element 1 is 1099511627776"));
    REQUIRE_THAT(message_of([&] { file.read<std::int32_t>("x"); }), Contains("integers are asked for"));
    REQUIRE_THAT(message_of([&] { file.read<float>("unwritten"); }),
                 Contains("bytes of shape (268435456, 1048576) are more than half of the machine's memory"));
    REQUIRE_THAT(message_of([&] { file.read_rows<float>("x", 3, 2); }), Contains("rows 3 to 5 of shape (4, 3, 5)"));
    REQUIRE_THAT(message_of([] { hdf5_file("/nowhere/x.h5"); }), Contains("no such file"));
    REQUIRE_THAT(message_of([&] { hdf5_file(folder.write("no.h5", "this is text")); }),
                 Contains("no.h5: not an HDF5 file") && Contains("signature"));
    REQUIRE_THAT(message_of([&] { hdf5_file(folder.write("empty.h5", "")); }), Contains("empty.h5: not an HDF5 file"));
}

TEST_CASE("hdf5: what was not written has the fill value", "[hdf5]") {
    const temporary_folder folder;
    const auto path = folder.path() / "fill.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    // 5 × 4 elements, of which `written` rows are.
    const auto make = [&](const char* name, hsize_t chunk, hsize_t written, bool compact, auto&& describe) {
        const hsize_t extents[2]{5, 4}, chunks[2]{chunk, 3};
        const handle_of space(H5Screate_simple(2, extents, nullptr), H5Sclose),
            how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        if (chunk) H5Pset_chunk(how.id, 2, chunks);
        if (compact) H5Pset_layout(how.id, H5D_COMPACT);
        describe(how.id);
        const handle_of set(H5Dcreate2(file, name, H5T_STD_I16BE, space.id, H5P_DEFAULT, how.id, H5P_DEFAULT),
                            H5Dclose);
        REQUIRE(set.id >= 0);
        if (!written) return;
        const hsize_t first[2]{0, 0}, count[2]{written, 4};
        const handle_of rows(H5Screate_simple(2, count, nullptr), H5Sclose);
        H5Sselect_hyperslab(space.id, H5S_SELECT_SET, first, nullptr, count, nullptr);
        const std::vector<int> ones(static_cast<std::size_t>(written * 4), 1);
        REQUIRE(H5Dwrite(set.id, H5T_NATIVE_INT, rows.id, space.id, H5P_DEFAULT, ones.data()) >= 0);
    };
    const auto seven = [](hid_t how) {
        const int value = 7;
        H5Pset_fill_value(how, H5T_NATIVE_INT, &value);
    };
    const auto zero = [](hid_t) {};
    make("contiguous", 0, 0, false, seven);
    make("compact", 0, 0, true, seven);
    make("chunked", 2, 0, false, seven);
    make("partly", 2, 2, false, seven);
    make("packed", 2, 3, false, [&](hid_t how) {
        seven(how);
        H5Pset_deflate(how, 6);
    });
    make("default", 2, 2, false, zero);
    make("default contiguous", 0, 0, false, zero);
    make("none", 2, 2, false, [](hid_t how) { H5Pset_fill_value(how, H5T_NATIVE_INT, nullptr); });
    make("never", 2, 2, false, [&](hid_t how) {
        seven(how);
        H5Pset_fill_time(how, H5D_FILL_TIME_NEVER);
    });
    H5Fclose(file);

    const hdf5_file f(path);
    const auto require_rows = [&](const char* name, index_t written, float fill) {
        INFO(name);
        const auto x = f.read<float>(name);
        const auto labels = f.read<std::int32_t>(name);
        for (index_t i = 0; i < 20; ++i) {
            REQUIRE(x[i] == (i / 4 < written ? 1.0f : fill));
            REQUIRE(labels[i] == static_cast<int>(x[i]));
        }
        REQUIRE(f.read_box<double>(name, std::array<index_t, 2>{3, 1}, {2, 2})[3] == static_cast<double>(fill));
        REQUIRE(f.read_rows<float>(name, 4, 1)[0] == fill);
    };
    for (const char* name : {"contiguous", "compact", "chunked"}) require_rows(name, 0, 7);
    require_rows("partly", 2, 7);
    require_rows("packed", 3, 7);
    require_rows("default", 2, 0);
    require_rows("default contiguous", 0, 0);
    for (const char* name : {"none", "never"})
        CHECK_THAT(message_of([&] { f.read<float>(name); }),
                   Contains("not all of it was written, and it has no fill value"));
}

TEST_CASE("hdf5: booleans, enumerations, wide integers, and extents of 0", "[hdf5]") {
    const temporary_folder folder;
    const auto path = folder.path() / "types.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const auto write = [&](const char* name, hid_t stored, hid_t memory, const std::vector<hsize_t>& extents,
                           const void* data) {
        const handle_of space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose),
            set(H5Dcreate2(file, name, stored, space.id, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT), H5Dclose);
        if (data) REQUIRE(H5Dwrite(set.id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    };
    const handle_of boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose), colour(H5Tenum_create(H5T_STD_U16BE), H5Tclose);
    for (const auto& [name, value] : {std::pair{"FALSE", std::int8_t{0}}, std::pair{"TRUE", std::int8_t{1}}})
        H5Tenum_insert(boolean.id, name, &value);  // as h5py writes NumPy's bool
    for (const auto& [name, value] :
         {std::pair{"red", std::uint16_t{0xff00}}, std::pair{"blue", std::uint16_t{0x0200}}})
        H5Tenum_insert(colour.id, name, &value);  // 255 and 2 in the other byte order
    const std::int8_t flags[]{1, 0, 1};
    const std::uint16_t colours[]{0x0200, 0xff00, 0x0200};
    write("booleans", boolean.id, boolean.id, {3}, flags);
    write("colours", colour.id, colour.id, {3}, colours);
    const std::uint64_t wide[]{1, std::uint64_t{1} << 63, UINT64_MAX};
    write("wide", H5T_STD_U64LE, H5T_NATIVE_UINT64, {3}, wide);
    write("short", H5T_STD_U64BE, H5T_NATIVE_UINT64, {1}, wide);
    write("empty", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {3, 0, 2}, nullptr);
    H5Dclose(H5Dcreate2(file, "null", H5T_IEEE_F32LE, handle_of(H5Screate(H5S_NULL), H5Sclose).id, H5P_DEFAULT,
                        H5P_DEFAULT, H5P_DEFAULT));
    const double reals[]{1, -1e39, std::numeric_limits<double>::infinity()};
    write("reals", H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, {3}, reals);
    write("infinite", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {1}, reals + 2);
    const handle_of huge(H5Tcopy(H5T_STD_I64LE), H5Tclose);
    H5Tset_size(huge.id, 16);
    H5Tset_precision(huge.id, 128);
    write("huge", huge.id, huge.id, {1}, nullptr);
    H5Fclose(file);

    const hdf5_file f(path);
    const auto booleans = f.read<std::int32_t>("booleans");
    REQUIRE((booleans[0] == 1 && booleans[1] == 0 && booleans[2] == 1));
    REQUIRE(f.read<float>("booleans")[2] == 1.0f);
    REQUIRE(f.holds_integers("booleans"));
    REQUIRE(f.read<std::int64_t>("colours")[1] == 255);
    REQUIRE(f.read<double>("colours")[0] == 2);
    REQUIRE(f.read<std::uint64_t>("wide")[2] == UINT64_MAX);
    REQUIRE(f.read<double>("wide")[1] == 0x1p63);
    REQUIRE_THAT(message_of([&] { f.read<std::int64_t>("wide"); }),
                 Contains("element 1 is 9223372036854775808, too large"));
    REQUIRE_THAT(message_of([&] { f.read<std::int32_t>("wide"); }),
                 Contains("element 1 is 9223372036854775808, too large"));
    REQUIRE(f.read<std::int64_t>("short")[0] == 1);
    REQUIRE(f.read<double>("reals")[1] == -1e39);
    REQUIRE_THAT(message_of([&] { f.read<float>("reals"); }),
                 Contains("data set 'reals': element 1 is -1e+39, too large for the 4-byte numbers"));
    REQUIRE(f.read<float>("infinite")[0] == std::numeric_limits<float>::infinity());
    REQUIRE(f.read<float>("empty").shape() == shape{3, 0, 2});
    REQUIRE_THAT(message_of([&] { f.read<float>("null"); }),
                 Contains("data set 'null': has no elements (a null data space)"));
    REQUIRE_THAT(message_of([&] { f.read<std::int64_t>("huge"); }), Contains("integers of 16 bytes"));
}

TEST_CASE("hdf5: elements in other files, and data sets of a newer library, are refused by name", "[hdf5]") {
    const temporary_folder folder;
    const auto path = folder.path() / "parts.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hsize_t extent = 3;
    const handle_of space(H5Screate_simple(1, &extent, nullptr), H5Sclose);
    const std::array<float, 3> x{1, 2, 3};
    haddr_t at = 0;
    const auto make = [&](const char* name, auto&& describe) {
        const handle_of how(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        describe(how.id);
        const handle_of set(H5Dcreate2(file, name, H5T_IEEE_F32LE, space.id, H5P_DEFAULT, how.id, H5P_DEFAULT),
                            H5Dclose);
        REQUIRE(set.id >= 0);
        if (std::string(name) == "x") {
            H5Dwrite(set.id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, x.data());
            at = H5Dget_offset(set.id);
        }
    };
    make("x", [](hid_t) {});
    make("external", [&](hid_t how) { H5Pset_external(how, (folder.path() / "raw").c_str(), 0, 12); });
    H5Lcreate_soft("/x", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external((folder.path() / "away.h5").c_str(), "/x", file, "away", H5P_DEFAULT, H5P_DEFAULT);
    make("virtual", [&](hid_t how) { H5Pset_virtual(how, space.id, ".", "x", space.id); });
    H5Fclose(file);
    CHECK(hdf5_file(path).read<float>("x")[2] == 3);
    CHECK_THAT(
        message_of([&] { hdf5_file(path).read<float>("external"); }),
        Contains("data set 'external': external: its elements lie in other files; write its elements into one file"));
    CHECK_THAT(message_of([&] { hdf5_file(path).read<float>("virtual"); }),
               Contains("virtual: its elements lie in other data sets"));

    // The message that says where the elements of x lie, of a version that this library does not know.
    bytes newer = read_bytes(path), layout{3, 1};
    append_number(layout, static_cast<std::uint64_t>(at), std::endian::little);
    append_number(layout, std::uint64_t{12}, std::endian::little);
    const auto found = std::search(newer.begin(), newer.end(), layout.begin(), layout.end());
    REQUIRE(found != newer.end());
    *found = 9;
    const hdf5_file of_newer(folder.write("newer.h5", newer));
    for (const char* name : {"x", "/x", "soft"})  // by whatever name
        CHECK_THAT(message_of([&] { of_newer.read<float>(name); }),
                   Contains(concat("newer.h5: data set '", name, "': HDF5 ")) &&
                       Contains("cannot open it: bad version number") && Contains("a newer HDF5 wrote it"));
    CHECK_THAT(message_of([&] { of_newer.read<float>("away"); }), Contains("cannot open it") && Contains("a link to"));
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
