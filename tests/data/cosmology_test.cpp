#include "catch.hpp"
#include "data/synthetic.hpp"
#include "messages.hpp"

#include <cairn/data/cosmology.hpp>

#include <algorithm>
#include <set>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

std::vector<float> read_one(const cosmology_volumes& d, index_t i, augment_key key = {}) {
    std::vector<float> x(static_cast<std::size_t>(d.sample_shape().size()) + 3);
    REQUIRE(d.read(i, key, {x.data(), nullptr, x.data() + d.sample_shape().size()}));
    return x;
}

}  // namespace

TEST_CASE("cosmology: a reduced volume is the logarithm of the density's means over cubes", "[cosmology]") {
    const cosmology_config config{.count = 2, .grid = 12, .reduce = 3, .box = 100, .seed = 3};
    const cosmology_volumes volumes(config);
    REQUIRE(volumes.sample_shape() == shape{4, 4, 4, 1});
    const cube_transform fft(12);
    const std::vector<double> growth{growth_factor(volumes.parameters(1), 0)};
    const auto fields = zeldovich_snapshots(fft, power_spectrum(volumes.parameters(1)), 100,
                                            {3, stream_of("cosmology field"), 1}, growth);
    std::vector<double> expected;
    for (index_t i = 0; i < 4; ++i)
        for (index_t j = 0; j < 4; ++j)
            for (index_t k = 0; k < 4; ++k) {
                double sum = 0;
                for (index_t cell = 0; cell < 27; ++cell)
                    sum += static_cast<double>(
                        fields[0][((3 * i + cell / 9) * 12 + 3 * j + cell / 3 % 3) * 12 + 3 * k + cell % 3]);
                expected.push_back(std::log(sum / 27 + 0.1));
            }
    const std::vector<float> x = read_one(volumes, 1);  // mean and deviation of other boxes are taken out
    const double slope = static_cast<double>(x[1] - x[0]) / (expected[1] - expected[0]);
    for (std::size_t v = 0; v < expected.size(); ++v)
        REQUIRE(static_cast<double>(x[v] - x[0]) == Approx(slope * (expected[v] - expected[0])).margin(1e-4));
    CHECK_THAT(message_of([] { cosmology_volumes({.count = 1, .grid = 8, .reduce = 3}); }),
               Contains("3 cells of an edge of 8"));
}

TEST_CASE("cosmology: a volume is a pure function of seed and number, on any number of threads", "[cosmology]") {
    const cosmology_config config{.count = 6, .grid = 16, .box = 100, .seed = 3};
    const cosmology_volumes whole(config);
    cosmology_config tail = config;
    tail.first = 4;
    tail.count = 2;
    const int before = threads();
    for (int n : {1, 2}) {
        set_threads(n);
        const cosmology_volumes again(config), end(tail);
        for (index_t i = 0; i < 6; ++i) REQUIRE(read_one(again, i) == read_one(whole, i));
        for (index_t i = 0; i < 2; ++i) REQUIRE(read_one(end, i) == read_one(whole, i + 4));
    }
    set_threads(before);
    cosmology_config other = config;
    other.seed = 4;
    REQUIRE(read_one(cosmology_volumes(other), 0) != read_one(whole, 0));
    REQUIRE(whole.sample_shape() == shape{16, 16, 16, 1});
    REQUIRE(whole.sample_name(1) == "cosmology volume 1 of seed 3");
}

TEST_CASE("cosmology: inputs and targets are about standard, targets give the parameters back", "[cosmology]") {
    const cosmology_volumes d({.count = 300, .grid = 16, .box = 128, .seed = 1});
    std::array<double, 4> mean{}, square{};
    const target_info info = d.targets();
    REQUIRE(info.names == std::vector<std::string>{"Omega_m", "sigma_8", "n_s"});
    for (index_t i = 0; i < d.size(); ++i) {
        const auto x = read_one(d, i);
        const cosmology c = d.parameters(i);
        REQUIRE(info.mean[0] + info.scale[0] * x[4096] == Approx(c.omega_m));
        REQUIRE(info.mean[1] + info.scale[1] * x[4097] == Approx(c.sigma_8));
        REQUIRE(info.mean[2] + info.scale[2] * x[4098] == Approx(c.n_s));
        REQUIRE(c.omega_m >= 0.1);
        REQUIRE(c.omega_m < 0.5);
        for (std::size_t j = 0; j < 3; ++j) {
            mean[j] += static_cast<double>(x[4096 + j]) / 300;
            square[j] += std::pow(static_cast<double>(x[4096 + j]), 2) / 300;
        }
        for (std::size_t v = 0; v < 4096; ++v) {
            mean[3] += static_cast<double>(x[v]) / (300.0 * 4096);
            square[3] += std::pow(static_cast<double>(x[v]), 2) / (300.0 * 4096);
        }
    }
    for (std::size_t j = 0; j < 4; ++j) {
        REQUIRE(mean[j] == Approx(0).margin(0.2));
        REQUIRE(square[j] == Approx(1).margin(0.2));
    }
}

TEST_CASE("cosmology: growth of fluctuations", "[cosmology]") {
    for (const double z : {0.0, 0.5, 1.5, 3.0}) {
        REQUIRE(growth_factor({.omega_m = 1}, z) == Approx(1 / (1 + z)).epsilon(1e-4));  // Einstein-de Sitter
        for (const double matter : {0.1, 0.3, 0.5}) {
            // The fit of Carroll, Press and Turner (1992), good to a few percent.
            const auto fit = [&](double a) {
                const double e2 = matter / (a * a * a) + 1 - matter, m = matter / (a * a * a) / e2,
                             l = (1 - matter) / e2;
                return a * 2.5 * m / (std::pow(m, 4.0 / 7) - l + (1 + m / 2) * (1 + l / 70));
            };
            REQUIRE(growth_factor({.omega_m = matter}, z) == Approx(fit(1 / (1 + z)) / fit(1)).epsilon(0.03));
        }
    }
}

TEST_CASE("cosmology: channels are the same box at earlier times, when less had clumped", "[cosmology]") {
    const cosmology_config now{.count = 2, .grid = 8, .box = 60, .seed = 3};
    cosmology_config times = now;
    times.redshifts = {0, 1.5, 3};
    const cosmology_volumes one(now), all(times);
    REQUIRE(all.sample_shape() == shape{8, 8, 8, 3});
    for (index_t i = 0; i < 2; ++i) {
        const auto x = read_one(one, i), y = read_one(all, i);
        for (std::size_t v = 0; v < 512; ++v) REQUIRE(y[3 * v] == x[v]);
        REQUIRE(std::equal(x.end() - 3, x.end(), y.end() - 3));
    }
    const cube_transform fft(8);
    const power_spectrum p(one.parameters(0));
    const std::array<double, 3> growth{1, 0.5, 0.25};
    std::array<double, 3> square{};
    const auto fields = zeldovich_snapshots(fft, p, 60, {1, 2, 3}, growth);
    for (std::size_t t = 0; t < 3; ++t)
        for (const float value : fields[t].span()) square[t] += std::pow(static_cast<double>(value) - 1, 2);
    REQUIRE(square[1] < square[0]);
    REQUIRE(square[2] < square[1]);

    // Turned and moved, channels stay together: the pairs of values at a voxel are those that were there.
    times.augment = true;
    const auto pairs = [](const std::vector<float>& x) {
        std::multiset<std::array<float, 3>> found;
        for (std::size_t v = 0; v < 512; ++v) found.insert({x[3 * v], x[3 * v + 1], x[3 * v + 2]});
        return found;
    };
    REQUIRE(pairs(read_one(cosmology_volumes(times), 1, {1, 2})) == pairs(read_one(all, 1)));
}

TEST_CASE("cosmology: augmentation moves and turns a volume, and changes no value", "[cosmology]") {
    const cosmology_config config{.count = 1, .grid = 6, .box = 100, .seed = 3, .augment = true};
    cosmology_config plain = config;
    plain.augment = false;
    const cosmology_volumes d(config);
    const auto before = read_one(cosmology_volumes(plain), 0);
    auto sorted = before;
    std::sort(sorted.begin(), sorted.end() - 3);
    std::set<std::vector<float>> seen;
    const index_t n = 6;
    const auto at = [&](const std::vector<float>& v, index_t a, index_t b, index_t c) {
        return v[static_cast<std::size_t>(((a + n) % n * n + (b + n) % n) * n + (c + n) % n)];
    };
    for (std::uint32_t epoch = 0; epoch < 200; ++epoch) {
        auto x = read_one(d, 0, {1, epoch});
        REQUIRE(x == read_one(d, 0, {1, epoch}));
        REQUIRE(read_one(d.unaugmented(), 0, {1, epoch}) == before);
        seen.insert(x);
        // The sum over pairs of neighbours, which every symmetry of the periodic grid keeps and no other permutation
        // would.
        double pairs = 0, expected = 0;
        for (index_t a = 0; a < n; ++a)
            for (index_t b = 0; b < n; ++b)
                for (index_t c = 0; c < n; ++c) {
                    pairs += static_cast<double>(at(x, a, b, c) *
                                                 (at(x, a + 1, b, c) + at(x, a, b + 1, c) + at(x, a, b, c + 1)));
                    expected +=
                        static_cast<double>(at(before, a, b, c) * (at(before, a + 1, b, c) + at(before, a, b + 1, c) +
                                                                   at(before, a, b, c + 1)));
                }
        REQUIRE(pairs == Approx(expected).epsilon(1e-5));
        std::sort(x.begin(), x.end() - 3);
        REQUIRE(x == sorted);
    }
    REQUIRE(seen.size() > 190);
}

TEST_CASE("cosmology: impossible configurations", "[cosmology]") {
    const auto message = [](cosmology_config c) { return message_of([&] { cosmology_volumes{c}; }); };
    REQUIRE_THAT(message({.count = 0}), Contains("0 volumes"));
    REQUIRE_THAT(message({.count = 1, .grid = 1}), Contains("grid 1"));
    REQUIRE_THAT(message({.count = 1, .box = -5}), Contains("box -5"));
    REQUIRE_THAT(message({.count = 1, .redshifts = {}}), Contains("redshifts"));
    REQUIRE_THAT(message({.count = 1, .redshifts = {0, -1}}), Contains("none negative"));
    REQUIRE_THAT(message({.count = 1, .grid = 8, .omega_m = {0.5, 0.1}}), Contains("empty parameter range 0.5 to 0.1"));
    REQUIRE_THAT(message({.count = 1, .grid = 8, .omega_m = {0.01, 0.02}}), Contains("impossible cosmology"));
}

}  // namespace cairn::test
