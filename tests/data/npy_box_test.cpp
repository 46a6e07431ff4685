#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/npy_box.hpp>

#include <array>

namespace cairn::test {

using Catch::Matchers::Contains;

TEST_CASE("npy: boxes are those of the whole, in either order", "[npy]") {
    const temporary_folder folder;
    std::vector<float> values(4 * 3 * 5 * 2);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
    for (const bool fortran : {false, true})
        for (const int version : {1, 2}) {
            const auto path = folder.write(
                "x.npy", npy_file(">f4", "(4, 3, 5, 2)", elements_of(values, std::endian::big), fortran, version));
            const auto whole = read_npy(path).to_tensor<float>();
            for (index_t a = 0; a <= 4; ++a)
                for (index_t b = 0; b < 3; ++b)
                    for (index_t c = 0; c < 5; ++c) {
                        const shape count{(4 - a) / 2, 3 - b, c == 4 ? 0 : (5 - c + 1) / 2, c % 2 ? 1 : 2};
                        const auto box =
                            read_npy_box(path, std::array<index_t, 4>{a, b, c, 0}, count).to_tensor<float>();
                        REQUIRE(box.shape() == count);
                        for (index_t i = 0; i < count[0]; ++i)
                            for (index_t j = 0; j < count[1]; ++j)
                                for (index_t k = 0; k < count[2]; ++k)
                                    for (index_t l = 0; l < count[3]; ++l)
                                        REQUIRE(box(i, j, k, l) == whole(a + i, b + j, c + k, l));
                    }
        }
    const auto scalar = folder.write("scalar.npy", npy_file("<f8", "()", elements_of<double>({2.5})));
    REQUIRE(read_npy_box(scalar, {}, {}).to_tensor<double>()[0] == 2.5);
}

TEST_CASE("npy: boxes that are not there and damaged files are refused", "[npy]") {
    const temporary_folder folder;
    const bytes file = npy_file("<f4", "(2, 3)", elements_of<float>({0, 1, 2, 3, 4, 5}));
    const auto path = folder.write("x.npy", file);
    const std::array<index_t, 2> origin{0, 0};
    REQUIRE_THAT(message_of([&] {
                     read_npy_box(path, std::array<index_t, 2>{1, 0}, {2, 3});
                 }),
                 Contains("x.npy: a box of shape (2, 3) from 1 on axis 0 does not lie within (2, 3)"));
    REQUIRE_THAT(message_of([&] { read_npy_box(path, origin, {2, 3, 1}); }), Contains("a box of 3 axes"));
    REQUIRE_THAT(message_of([&] { read_npy_box("/nowhere/x.npy", origin, {1, 1}); }), Contains("no such file"));
    for (std::size_t length = 0; length < file.size(); ++length) {
        const auto cut =
            folder.write("cut.npy", bytes(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)));
        REQUIRE_THAT(message_of([&] { read_npy_box(cut, origin, {1, 1}); }), Contains("cut.npy"));
    }
    bytes longer = file;
    longer.push_back(0);
    REQUIRE_THAT(message_of([&] {
                     read_npy_box(folder.write("long.npy", longer), origin, {1, 1});
                 }),
                 Contains("takes 24 bytes") && Contains("25 are there"));
}

}  // namespace cairn::test
