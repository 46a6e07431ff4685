#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/array_files.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("array files: classes and values from npy, npz and HDF5", "[array_files]") {
    const temporary_folder folder;
    const auto x = elements_of<float>({1, 2, 3, 4, 5, 6}), values = elements_of<double>({1, 2, 6});
    const auto labels = elements_of<std::int64_t>({0, 2, 1});
    const bytes x_file = npy_file("<f4", "(3, 2)", x), label_file = npy_file("<i8", "(3,)", labels),
                value_file = npy_file("<f8", "(3,)", values);
    folder.write("x.npy", x_file);
    folder.write("labels.npy", label_file);
    folder.write("all.npz",
                 zip_file({{"x.npy", x_file}, {"labels.npy", label_file}, {"values.npy", value_file}}, true));
    const auto path = folder.path() / "all.h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const auto write = [&](const char* name, std::vector<hsize_t> extents, hid_t type, const bytes& data) {
        const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
        const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data());
        H5Dclose(set);
        H5Sclose(space);
    };
    write("x", {3, 2}, H5T_IEEE_F32LE, x);
    write("labels", {3}, H5T_STD_I64LE, labels);
    write("values", {3}, H5T_IEEE_F64LE, values);
    H5Fclose(file);

    const std::string root = folder.path().string() + "/";
    for (const auto& [xs, ls] :
         {std::pair{"x.npy", "labels.npy"}, {"all.npz:x", "all.npz:labels"}, {"all.h5:x", "all.h5:labels"}}) {
        const array_dataset d = read_array_dataset(root + xs, root + ls, {"zero"});
        REQUIRE(d.size() == 3);
        REQUIRE(d.sample_shape() == shape{2});
        REQUIRE(d.targets().kind == target_kind::classes);
        REQUIRE(d.targets().names == std::vector<std::string>{"zero", "1", "2"});
        float sample[2];
        std::int32_t label = 0;
        d.read(1, {}, {sample, &label, nullptr});
        REQUIRE(sample[1] == 4);
        REQUIRE(label == 2);
    }
    for (const char* name : {"all.npz:values", "all.h5:values"}) {
        const array_dataset d = read_array_dataset(root + "x.npy", root + name);
        REQUIRE(d.targets().kind == target_kind::values);
        REQUIRE(d.targets().mean.front() == 3);
    }
}

TEST_CASE("array files: mistakes", "[array_files]") {
    const temporary_folder folder;
    const std::string root = folder.path().string() + "/";
    folder.write("x.npy", npy_file("<f4", "(1, 2)", elements_of<float>({1, 2})));
    folder.write("year.npy", npy_file("<i4", "(1,)", elements_of<std::int32_t>({2024})));
    folder.write("a.npz", zip_file({}, false));
    REQUIRE_THAT(message_of([&] { read_array<float>(root + "x.txt"); }), Contains("unknown kind of array file"));
    REQUIRE_THAT(message_of([&] { read_array<float>(root + "a.npz"); }),
                 Contains("say which array") && Contains("a.npz:NAME"));
    REQUIRE_THAT(message_of([&] { read_array<float>(root + "a.npz:y"); }), Contains("no array 'y'"));
    REQUIRE_THAT(message_of([&] { read_array<float>(root + "y.npy"); }), Contains("y.npy: no such file"));
    REQUIRE_THAT(message_of([&] { read_array_dataset(root + "x.npy", root + "year.npy"); }),
                 Contains("a label of 2024 among 1 samples"));
}

}  // namespace cairn::test
