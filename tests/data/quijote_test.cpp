#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/quijote.hpp>

#include <set>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

const char* const header = "sim_id,Omega_m,Omega_b,h,n_s,sigma_8\n";

std::vector<float> read_one(const quijote_slices& d, index_t i, augment_key key = {}) {
    std::vector<float> x(static_cast<std::size_t>(d.sample_shape().size())),
        y(static_cast<std::size_t>(d.targets().count()));
    REQUIRE(d.read(i, key, {x.data(), nullptr, y.data()}));
    x.insert(x.end(), y.begin(), y.end());
    return x;
}

}  // namespace

TEST_CASE("quijote: slices, targets, reduction, crop and symmetries", "[quijote]") {
    const temporary_folder folder;
    folder.write("slices-idx3-ubyte.gz", gzipped(idx_file({2, 8, 8}, counting(128, 3))));
    folder.write("targets.csv", std::string(header) + "0,0.1,0.05,0.7,1,0.6\n7,0.5,0.05,0.7,1,0.9\n");
    const quijote_slices d(folder.path(), {});
    REQUIRE(d.size() == 2);
    REQUIRE(d.sample_shape() == shape{8, 8, 1});
    REQUIRE(d.targets().names == std::vector<std::string>{"Omega_m", "sigma_8"});
    REQUIRE(d.sample_name(1).ends_with("#1 (simulation 7)"));
    const auto x = read_one(d, 1);
    REQUIRE(x[64] == Approx(std::sqrt(3.0)));  // the upper end of the range
    REQUIRE(d.targets().mean[1] + d.targets().scale[1] * x[65] == Approx(0.9));
    // Affine in the bytes, mean 0 and variance 1 over all.
    double sum = 0, squares = 0;
    for (index_t i = 0; i < 2; ++i)
        for (std::size_t k = 0; k < 64; ++k) {
            const double v = static_cast<double>(read_one(d, i)[k]);
            sum += v;
            squares += v * v;
        }
    REQUIRE(sum == Approx(0).margin(1e-4));
    REQUIRE(squares / 128 == Approx(1));
    REQUIRE((x[1] - x[0]) == Approx(x[5] - x[4]));

    const quijote_slices half(folder.path(), {.reduce = 2});
    REQUIRE(half.sample_shape() == shape{4, 4, 1});
    const auto r = read_one(half, 0), full = read_one(d, 0);
    const double a = static_cast<double>(full[0] + full[1] + full[8] + full[9]) / 4,
                 b = static_cast<double>(full[2] + full[3] + full[10] + full[11]) / 4,
                 c = static_cast<double>(full[16] + full[17] + full[24] + full[25]) / 4;
    REQUIRE(static_cast<double>((r[4] - r[0]) / (r[1] - r[0])) == Approx((c - a) / (b - a)));

    // Each augmented window is one of the eight images of some window of the slice.
    const quijote_slices augmented = d.with(5, true);
    std::set<std::vector<float>> seen;
    for (std::uint32_t epoch = 0; epoch < 400; ++epoch) {
        const auto w = read_one(augmented, 0, {1, epoch});
        REQUIRE(w == read_one(augmented, 0, {1, epoch}));
        seen.insert(w);
        bool found = false;
        for (index_t top = 0; top <= 3 && !found; ++top)
            for (index_t left = 0; left <= 3 && !found; ++left)
                for (int symmetry = 0; symmetry < 8 && !found; ++symmetry) {
                    found = true;
                    for (index_t y = 0; y < 5 && found; ++y)
                        for (index_t u = 0; u < 5 && found; ++u) {
                            index_t p = symmetry & 1 ? 4 - y : y, q = symmetry & 2 ? 4 - u : u;
                            if (symmetry & 4) std::swap(p, q);
                            found = w[static_cast<std::size_t>(y * 5 + u)] ==
                                    full[static_cast<std::size_t>((top + p) * 8 + left + q)];
                        }
                }
        REQUIRE(found);
    }
    REQUIRE(seen.size() > 100);  // of 128
    REQUIRE(read_one(augmented.unaugmented(), 0, {1, 1}) == read_one(d.with(5, false), 0));
    const auto middle = read_one(d.with(4, false), 0);
    REQUIRE(middle[0] == full[2 * 8 + 2]);
}

TEST_CASE("quijote: bad folders", "[quijote]") {
    const auto message = [](const bytes& images, const std::string& table, quijote_config config = {}) {
        const temporary_folder folder;
        folder.write("slices-idx3-ubyte", images);
        folder.write("targets.csv", table);
        return message_of([&] { quijote_slices(folder.path(), config); });
    };
    const bytes images = idx_file({2, 8, 8}, counting(128, 3));
    const std::string table = std::string(header) + "0,0.1,0.05,0.7,1,0.6\n7,0.5,0.05,0.7,1,0.9\n";
    REQUIRE(message(images, table).empty());
    REQUIRE_THAT(message(images, std::string(header) + "0,0.1,0.05,0.7,1,0.6\n"),
                 Contains("2 slices") && Contains("1 rows"));
    REQUIRE_THAT(message(images, "sim_id,Omega_m\n1,2\n3,4\n"), Contains("no column 'sigma_8'"));
    REQUIRE_THAT(message(images, table, {.targets = {"w_0"}}), Contains("unknown target 'w_0'"));
    REQUIRE_THAT(message(images, table, {.reduce = 3}), Contains("reduce = 3"));
    REQUIRE_THAT(message(images, table, {.crop = 9}), Contains("crop 9"));
    REQUIRE_THAT(message(idx_file({2, 8, 8}, bytes(128, 4)), table), Contains("all pixels are equal"));
    REQUIRE_THAT(message_of([] { quijote_slices("/nowhere", {}); }), Contains("/nowhere"));
}

TEST_CASE("quijote: the real slices", "[quijote]") {
    const auto folder = real_data() / "quijote-slices";
    if (!std::filesystem::exists(folder)) {
        WARN("skipped: no data");
        return;
    }
    const quijote_slices d(folder, {.targets = {"Omega_m", "Omega_b", "h", "n_s", "sigma_8"}, .reduce = 4});
    REQUIRE(d.size() == 199);
    REQUIRE(d.sample_shape() == shape{88, 88, 1});
    for (index_t i = 0; i < d.size(); ++i) {
        const auto x = read_one(d, i);
        for (std::size_t k = 0; k < 5; ++k) REQUIRE(std::abs(x[88 * 88 + k]) < 1.74f);
    }
}

}  // namespace cairn::test
