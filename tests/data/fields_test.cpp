// Fields: samples against plain loops over the files, splits, and what is said of bad ones.

#include "catch.hpp"
#include "data/netcdf_files.hpp"
#include "messages.hpp"

#include <cairn/data/audit.hpp>
#include <cairn/data/fields/fields_format.hpp>

#include <set>

namespace cairn::test::fields_tests {

using Catch::Matchers::Contains;

constexpr float fill = -999;

std::vector<float> waves(std::size_t n, float phase) {
    std::vector<float> all;
    for (std::size_t i = 0; i < n; ++i) all.push_back(10 + 3 * std::sin(phase + 0.7f * static_cast<float>(i * i % 31)));
    return all;
}

bytes npy_of(const std::vector<float>& values, const std::string& axes) {
    return npy_file("<f4", axes, elements_of(values));
}

// A variable t of 3 years on 2 x 4 points in degrees.
netcdf_content climate(std::vector<float> values, const std::vector<double>& latitudes = {-60, 30}) {
    netcdf_content c{.version = 1,
                     .dimensions = {{"time", 3}, {"lat", 2}, {"lon", 4}},
                     .records = 0,
                     .attributes = {},
                     .variables = {}};
    c.variables.push_back(
        {"t", {0, 1, 2}, 5, big_endian<float>(values), {{"_FillValue", 5, big_endian<float>({fill})}}});
    c.variables.push_back({"lat", {1}, 6, big_endian<double>(latitudes), {text_attribute("units", "degrees_north")}});
    c.variables.push_back(
        {"lon", {2}, 6, big_endian<double>({0, 90, 180, 270}), {text_attribute("units", "degrees_east")}});
    return c;
}

struct sample {
    std::vector<float> x, values;
};
sample read_one(const any_dataset& d, index_t i, augment_key key = {}) {
    sample s{std::vector<float>(static_cast<std::size_t>(d.sample_shape().size()), -7.0f),
             std::vector<float>(static_cast<std::size_t>(d.targets().values_each()), -7.0f)};
    REQUIRE(d.read(i, key, {s.x.data(), nullptr, s.values.data()}));
    return s;
}

fields_format of(std::vector<std::string> files, std::vector<std::string> inputs, std::vector<std::string> targets) {
    fields_format f;
    f.split.group = "file", f.split.section = "data.fields";
    f.files = std::move(files), f.choices.inputs = std::move(inputs), f.choices.targets = std::move(targets);
    return f;
}

TEST_CASE("fields: arrays are standardised by the training part, and tested at another resolution", "[fields]") {
    const temporary_folder folder;
    std::vector<float> a = waves(4 * 2 * 6, 0), u = waves(4 * 6, 1);
    a[5] = std::numeric_limits<float>::quiet_NaN();
    folder.write("train_a.npy", npy_of(a, "(4, 2, 2, 3)"));
    folder.write("train_u.npy.gz", gzipped(npy_of(u, "(4, 2, 3)")));
    folder.write("fine_a.npy", npy_of(waves(2 * 24, 2), "(1, 2, 4, 6)"));
    folder.write("fine_u.npy", npy_of(waves(24, 3), "(1, 4, 6)"));
    fields_format f = of({"train_*.npy"}, {"a"}, {"u"});
    REQUIRE_THAT(message_of([&] { f.load(folder.path()); }), Contains("train_u.npy: no such file"));
    folder.write("train_u.npy", npy_of(u, "(4, 2, 3)"));
    f.test_files = {"fine_*.npy"};
    f.choices.coordinates = true;
    const data_parts parts = f.load(folder.path());
    REQUIRE(parts.train.size() == 4);
    REQUIRE(parts.sample == shape{2, 3, 5});  // the first channel of a and its mask, the second, y, x
    REQUIRE(parts.test.sample_shape() == shape{4, 6, 5});
    REQUIRE(parts.info.names == std::vector<std::string>{"u"});
    REQUIRE(parts.info.labels_each == 6);
    REQUIRE(parts.test.sample_name(0) == "fine_*.npy sample 0");
    const auto moments = [](const std::vector<float>& all, std::size_t channel, std::size_t channels) {
        double n = 0, mean = 0, squares = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (i / 6 % channels == channel && all[i] == all[i]) ++n, mean += static_cast<double>(all[i]);
        mean /= n;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (i / 6 % channels == channel && all[i] == all[i])
                squares += std::pow(static_cast<double>(all[i]) - mean, 2) / n;
        return std::pair(mean, std::sqrt(squares));
    };
    const auto [m0, s0] = moments(a, 0, 2);
    const auto [m1, s1] = moments(a, 1, 2);
    const auto [mu, su] = moments(u, 0, 1);
    REQUIRE(static_cast<double>(parts.info.mean[0]) == Approx(mu));
    REQUIRE(static_cast<double>(parts.info.scale[0]) == Approx(su));
    for (index_t i = 0; i < 4; ++i) {
        const sample s = read_one(parts.train, i);
        for (std::size_t p = 0; p < 6; ++p) {
            const std::size_t at = static_cast<std::size_t>(i) * 12 + p;
            const bool known = at != 5;
            CHECK(static_cast<double>(s.x[5 * p]) ==
                  Approx(known ? (static_cast<double>(a[at]) - m0) / s0 : 0).margin(1e-6));
            CHECK(s.x[5 * p + 1] == (known ? 1.0f : 0.0f));
            CHECK(static_cast<double>(s.x[5 * p + 2]) ==
                  Approx((static_cast<double>(a[at + 6]) - m1) / s1).margin(1e-5));
            CHECK(s.x[5 * p + 3] == (p < 3 ? -1.0f : 1.0f));
            CHECK(s.x[5 * p + 4] == static_cast<float>(p % 3) - 1.0f);
            CHECK(static_cast<double>(s.values[p]) ==
                  Approx((static_cast<double>(u[static_cast<std::size_t>(i) * 6 + p]) - mu) / su).margin(1e-5));
        }
    }
}

TEST_CASE("fields: whole files are tested on, anomalies are of each pixel and weighted by area", "[fields]") {
    const temporary_folder folder;
    std::vector<std::vector<float>> members;
    for (int m = 0; m < 3; ++m) {
        members.push_back(waves(24, static_cast<float>(m)));
        members.back()[7] = fill;  // in the first year
        folder.write(concat('m', m, ".nc"), netcdf_bytes(climate(members.back())));
    }
    fields_format f = of({"m0.nc", "m1.nc", "m2.nc"}, {"t"}, {"t"});
    f.choices.anomalies = true;
    f.choices.known = 3;
    f.split.kind = table_split::chosen;
    f.split.tested = {"m1.nc"};
    const data_parts parts = f.load(folder.path());
    REQUIRE(parts.train.size() == 6);
    REQUIRE(parts.test.size() == 3);
    REQUIRE(parts.belong_together);
    REQUIRE(parts.test.sample_name(2) == "m1.nc sample 2");
    double scale = 0, areas = 0;
    std::vector<double> mean(8), deviation(8), area(8);
    for (std::size_t p = 0; p < 8; ++p) {
        std::vector<double> trained;
        for (const std::size_t m : {0u, 2u})
            for (std::size_t year = 0; year < 3; ++year)
                if (members[m][year * 8 + p] != fill) trained.push_back(static_cast<double>(members[m][year * 8 + p]));
        for (const double v : trained) mean[p] += v / static_cast<double>(trained.size());
        for (const double v : trained) deviation[p] += std::pow(v - mean[p], 2) / static_cast<double>(trained.size());
        deviation[p] = std::sqrt(deviation[p]);
        area[p] = p < 4 ? 0.5 : std::sqrt(3) / 2;  // cosines of −60 and 30 degrees
        scale += area[p] * deviation[p] * deviation[p], areas += area[p];
    }
    REQUIRE(static_cast<double>(parts.info.scale[0]) == Approx(std::sqrt(scale / areas)));
    const sample tested = read_one(parts.test, 0), again = read_one(parts.test, 1, {5, 6});
    index_t known = 0;
    for (std::size_t p = 0; p < 8; ++p) {
        CHECK(parts.info.weights[p] == Approx(8 * area[p] * deviation[p] * deviation[p] / scale));
        const double v = static_cast<double>(members[1][p]), anomaly = (v - mean[p]) / deviation[p];
        CHECK(std::isnan(tested.values[p]) == (p == 7));
        if (p != 7) CHECK(static_cast<double>(tested.values[p]) == Approx(anomaly).margin(1e-4));
        CHECK(static_cast<double>(tested.x[2 * p]) == Approx(tested.x[2 * p + 1] > 0 ? anomaly : 0).margin(1e-4));
        known += again.x[2 * p + 1] > 0;
    }
    CHECK(known == 3);  // of the second year, which has all values

    // Test samples have the same known cells whatever the epoch, training samples others each time.
    std::set<std::vector<bool>> drawn, fixed;
    for (std::uint32_t epoch = 0; epoch < 20; ++epoch)
        for (const bool training : {false, true}) {
            const sample s = read_one(training ? parts.train : parts.test, 1, {9, epoch});
            std::vector<bool> mask;
            for (std::size_t p = 0; p < 8; ++p) mask.push_back(s.x[2 * p + 1] > 0);
            (training ? drawn : fixed).insert(mask);
        }
    CHECK(fixed.size() == 1);
    CHECK(drawn.size() > 5);

    // Folds of files and of samples are disjoint and complete.
    for (const table_split kind : {table_split::rows, table_split::groups}) {
        std::multiset<std::string> all;
        for (index_t fold = 0; fold < 3; ++fold) {
            f.split.kind = kind;
            f.split.folds = {3, fold, 4};
            const data_parts one = f.load(folder.path());
            for (index_t i = 0; i < one.test.size(); ++i) all.insert(one.test.sample_name(i));
        }
        CHECK(all.size() == 9);
        CHECK(std::set(all.begin(), all.end()).size() == 9);
    }
}

TEST_CASE("fields: what does not fit is named", "[fields]") {
    const temporary_folder folder;
    folder.write("m0.nc", netcdf_bytes(climate(waves(24, 0))));
    folder.write("m1.nc", netcdf_bytes(climate(waves(24, 1))));
    folder.write("tilted.nc", netcdf_bytes(climate(waves(24, 1), {-60, 31})));
    folder.write("missing.nc", netcdf_bytes(climate(std::vector<float>(24, fill))));
    folder.write("flat.nc", netcdf_bytes(climate(std::vector<float>(24, 5))));
    bytes cut = netcdf_bytes(climate(waves(24, 0)));
    cut.resize(cut.size() - 90);
    folder.write("cut.nc", cut);
    folder.write("x.npy", npy_of(waves(24, 0), "(3, 2, 4)"));
    folder.write("y.npy", npy_of(waves(12, 0), "(3, 4)"));
    folder.write("z.npy", npy_of(waves(18, 0), "(3, 2, 3)"));
    folder.write("n.npy", npy_of(waves(16, 0), "(2, 2, 4)"));
    const auto message = [&](
                             std::vector<std::string> files, std::string input = "t", std::string target = "t",
                             const std::function<void(fields_format&)>& change = [](fields_format&) {}) {
        fields_format f = of(std::move(files), {std::move(input)}, {std::move(target)});
        f.split.folds = {2, 0, 0};
        change(f);
        return message_of([&] { f.load(folder.path()); });
    };
    CHECK(message({"m0.nc", "m1.nc"}).empty());
    CHECK_THAT(message({}), Contains("data.fields: name files, inputs and targets"));
    CHECK_THAT(message({"m0.nc", "tilted.nc"}), Contains("tilted.nc") && Contains("other latitudes or longitudes"));
    const auto alone = [](fields_format& f) { f.test_files = {"m0.nc"}; };
    CHECK_THAT(message({"missing.nc"}, "t", "t", alone),
               Contains("t: all its values in the training part are missing"));
    CHECK_THAT(message({"flat.nc"}, "t", "t", alone), Contains("t: has one value in the training part"));
    CHECK_THAT(message({"cut.nc"}), Contains("cut.nc") && Contains("byte"));
    CHECK_THAT(message({"m0.nc"}, "q"), Contains("no variable 'q'"));
    CHECK_THAT(message({"m0.nc"}, "lat"), Contains("(samples, height, width)"));
    CHECK_THAT(message({"*.npy"}, "x", "y"), Contains("y.npy: shape (3, 4)"));
    CHECK_THAT(message({"*.npy"}, "x", "z"), Contains("a grid of 2 x 3"));
    CHECK_THAT(message({"*.npy"}, "x", "n"), Contains("'n' has 2 samples, 'x' 3"));
    CHECK_THAT(message({"m0.nc"}, "t", "t", [](fields_format& f) { f.choices.known = 8; }),
               Contains("data.fields.known = 8"));
    CHECK_THAT(message({"m0.nc", "m1.nc"}, "t", "t",
                       [](fields_format& f) { f.split.kind = table_split::chosen, f.split.tested = {"m2.nc"}; }),
               Contains("data.fields.split leaves 6") && Contains("data.fields.tested (m2.nc)"));
    CHECK_THAT(message({"m0.nc", "m1.nc"}, "t", "t",
                       [](fields_format& f) {
                           f.split.kind = table_split::groups, f.split.folds = {3, 0, 0};
                       }),
               Contains("data.fields: 3 folds of 2 groups"));
    CHECK_THAT(message({"m0.nc"}, "t", "t", [](fields_format& f) { f.test_files = {"gone.nc"}; }), Contains("gone.nc"));
}

TEST_CASE("fields: equal samples are in one fold, and the audit finds those that are not", "[fields]") {
    const temporary_folder folder;
    std::vector<float> twice = waves(24, 0);
    std::copy_n(twice.begin(), 8, twice.begin() + 16);  // the third year is the first
    folder.write("m.nc", netcdf_bytes(climate(twice)));
    fields_format f = of({"m.nc"}, {"t"}, {"t"});
    for (index_t fold = 0; fold < 2; ++fold) {
        f.split.folds = {2, fold, 0};
        const data_parts parts = f.load(folder.path());
        CHECK((parts.test.size() == 1 || parts.test.size() == 2));
        CHECK(std::ranges::none_of(audit(parts), &audit_finding::leak));
    }
    f.test_files = {"m.nc"};
    CHECK(std::ranges::any_of(audit(f.load(folder.path())), &audit_finding::leak));
}

TEST_CASE("fields: samples that resemble the next ones are not to be in both parts", "[fields]") {
    const temporary_folder folder;
    for (const bool slow : {false, true}) {
        for (int m = 0; m < 3; ++m) {  // noise, or noise that is followed by most of itself
            std::vector<float> all;
            for (std::uint64_t i = 0; i < 20 * 8; ++i) {
                const auto noise = static_cast<float>(random_stream{1, static_cast<std::uint32_t>(m), slow}.normal(i));
                all.push_back(slow && i >= 8 ? 0.8f * all[i - 8] + 0.6f * noise : noise);
            }
            folder.write(concat('m', m, ".npy"), npy_of(all, "(20, 2, 4)"));
        }
        fields_format f = of({"m0.npy", "m1.npy", "m2.npy"}, {"t"}, {"t"});
        for (const table_split kind : {table_split::rows, table_split::groups}) {
            f.split.kind = kind;
            f.split.folds = {3, 0, 0};
            const auto found = audit(f.load(folder.path()));
            const auto leak = std::ranges::find_if(found, &audit_finding::leak);
            CHECK((leak != found.end()) == (slow && kind == table_split::rows));
            if (leak != found.end()) CHECK(contains(leak->text, "set data.fields.split = files"));
        }
    }
}

}  // namespace cairn::test::fields_tests
