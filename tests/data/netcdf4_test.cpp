// netCDF-4 files made here by the HDF5 library.
#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/netcdf.hpp>

#if CAIRN_HAS_HDF5

namespace cairn::test {
namespace netcdf4_tests {

using Catch::Matchers::Contains;

// An attribute of a data set or group.
template <class T>
void set_attribute(hid_t object, const char* name, hid_t stored, hid_t memory, const std::vector<T>& values) {
    const hsize_t n = values.size();
    const hid_t space = n == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &n, nullptr),
                a = H5Acreate2(object, name, stored, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, memory, values.data());
    H5Aclose(a);
    H5Sclose(space);
}
void set_text(hid_t object, const char* name, const std::string& text) {
    const hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, text.size());
    const hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(a, type, text.data());
    H5Aclose(a);
    H5Sclose(space);
    H5Tclose(type);
}

TEST_CASE("netcdf: netCDF-4 by the same words", "[netcdf][hdf5]") {
    const temporary_folder folder;
    const auto path = folder.path() / "four.nc";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const auto dataset = [&](const char* name, std::vector<hsize_t> extents, hid_t type, hid_t memory, const void* data,
                             bool unlimited = false) {
        std::vector<hsize_t> most = extents;
        if (unlimited) most[0] = H5S_UNLIMITED;
        const hid_t how = H5Pcreate(H5P_DATASET_CREATE);
        if (unlimited) H5Pset_chunk(how, static_cast<int>(extents.size()), extents.data());
        const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), most.data()),
                    set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, how, H5P_DEFAULT);
        if (data) H5Dwrite(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        H5Sclose(space);
        H5Pclose(how);
        return set;
    };
    const auto scale = [&](hid_t set, const std::string& name) {
        set_text(set, "CLASS", "DIMENSION_SCALE");
        set_text(set, "NAME", name);
    };
    const auto along = [&](hid_t set, const std::vector<const char*>& scales) {
        std::vector<hobj_ref_t> references(scales.size());
        std::vector<hvl_t> lists(scales.size());
        for (std::size_t i = 0; i < scales.size(); ++i) {
            H5Rcreate(&references[i], file, scales[i], H5R_OBJECT, -1);
            lists[i] = {1, &references[i]};
        }
        const hid_t type = H5Tvlen_create(H5T_STD_REF_OBJ);
        const hsize_t n = scales.size();
        const hid_t space = H5Screate_simple(1, &n, nullptr),
                    a = H5Acreate2(set, "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT);
        H5Awrite(a, type, lists.data());
        H5Aclose(a);
        H5Sclose(space);
        H5Tclose(type);
    };
    const std::vector<double> times{0.5, 1.5};
    const std::vector<std::int16_t> values{1, 2, -1, 4, 5, 6}, of_x{7, 8};
    const hid_t time = dataset("time", {2}, H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, times.data(), true);
    scale(time, "time");
    const hid_t x = dataset("x", {3}, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, nullptr);
    scale(x, "This is a netCDF dimension but not a netCDF variable.         3");
    const hid_t t = dataset("t", {2, 3}, H5T_STD_I16LE, H5T_NATIVE_INT16, values.data());
    along(t, {"/time", "/x"});
    set_attribute<std::int16_t>(t, "_FillValue", H5T_STD_I16LE, H5T_NATIVE_INT16, {-1});
    set_attribute<std::int16_t>(t, "valid_range", H5T_STD_I16LE, H5T_NATIVE_INT16, {2, 5});
    set_attribute<double>(t, "scale_factor", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {0.5});
    set_text(t, "units", "K");
    const hid_t hidden = dataset("_nc4_non_coord_x", {2}, H5T_STD_I16LE, H5T_NATIVE_INT16, of_x.data());
    along(hidden, {"/time"});
    H5Gclose(H5Gcreate2(file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    const hid_t plain = dataset("g/plain", {2, 3}, H5T_STD_I32LE, H5T_NATIVE_INT16, values.data());
    const hid_t word = H5Tcopy(H5T_C_S1), text = dataset("text", {1}, word, word, "a");
    for (const hid_t set : {time, x, t, hidden, plain, text}) H5Dclose(set);
    H5Tclose(word);
    {
        const hid_t root = H5Gopen2(file, "/", H5P_DEFAULT), type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, H5T_VARIABLE);
        set_text(root, "_NCProperties", "version=2");
        set_attribute<const char*>(root, "title", type, type, {"four"});
        H5Tclose(type);
        H5Gclose(root);
    }
    H5Fclose(file);

    const netcdf_file four(path);
    REQUIRE(four.attributes().size() == 1);
    REQUIRE(four.attributes()[0].text() == "four");
    std::vector<std::string> names;
    for (const netcdf_variable& v : four.variables()) {
        names.push_back(v.name + ":");
        for (const std::size_t d : v.dimensions) names.back() += " " + four.dimensions()[d].name;
    }
    REQUIRE(names ==
            std::vector<std::string>{"x: time", "g/plain: phony_dim_2 phony_dim_3", "t: time x", "time: time"});
    REQUIRE(four.dimensions()[0].name == "time");
    REQUIRE(four.dimensions()[0].unlimited);
    REQUIRE_FALSE(four.dimensions()[1].unlimited);
    REQUIRE(four.dimensions()[1].length == 3);
    REQUIRE(four.variable("t").type == netcdf_type::i16);
    REQUIRE(four.variable("t").attributes.size() == 4);
    REQUIRE(four.variable("t").attribute("units")->text() == "K");
    REQUIRE(four.read<double>("time")[1] == 1.5);
    REQUIRE(four.read<int>("x")[1] == 8);
    REQUIRE(four.read<int>("g/plain")[2] == -1);
    const auto field = four.read_unpacked<float>("t");
    const std::vector<float> expected{0, 1, 0, 2, 2.5f, 0};
    for (index_t i = 0; i < 6; ++i) {
        REQUIRE(field.values[i] == expected[static_cast<std::size_t>(i)]);
        REQUIRE(field.missing[i] == (expected[static_cast<std::size_t>(i)] == 0));
    }
    REQUIRE_THAT(message_of([&] { four.read<float>("text"); }),
                 Contains("four.nc: no variable 'text'; there are: x, "));
    const auto damaged = folder.write("bad.nc", bytes{0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n', 0, 0});
    REQUIRE_THAT(message_of([&] { netcdf_file{damaged}; }), Contains("bad.nc: not an HDF5 file, or a damaged one"));
}

}  // namespace netcdf4_tests
}  // namespace cairn::test

#endif
