// The file of predictions: rows against the figures of the same run, alike from any number of ranks; and states that
// know what the data taught.

#include "catch.hpp"
#include "train/thread_runs.hpp"

#include <cairn/data/csv.hpp>

#include <fstream>
#include <set>
#include <string>

namespace cairn::test {
namespace {

using Catch::Contains;

void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

std::string rows_of_table(double shift = 0) {
    std::string text = "a,b,kind,size\n";
    for (int i = 0; i < 60; ++i)
        text += concat(i % 7, ',', (i * i) % 11 + shift, ',', i % 2 ? "\"odd, too\"" : "even", ',', 3 * (i % 7) + 100,
                       '\n');
    return text;
}

std::string workload_of(const std::filesystem::path& file, const std::string& target, const std::string& more = "") {
    return "[data]\nformat = 'table'\npath = '" + file.string() + "'\n[data.table]\ncolumns = ['a', 'b']\ntarget = ['" +
           target + "']\n[model]\nkind = 'mlp'\nhidden = [4]\n[train]\nepochs = 2\nbatch = 12\n" + more;
}

}  // namespace

TEST_CASE("predictions: a row a test sample, of which the run's figures follow", "[session]") {
    const ::temporary_folder folder;
    write(folder / "t.csv", rows_of_table());
    for (const std::string target : {"kind", "size"}) {
        const std::string text = workload_of(folder / "t.csv", target);
        std::string first;
        for (const int ranks : {1, 2}) {
            const auto file = folder / concat(target, ranks, ".csv"), out = folder / concat(target, ranks);
            session_options options{.out = out, .resume = {}, .max_steps = -1};
            options.predictions = file;
            const nlohmann::json end = train(ranks, options, {}, text);
            const csv_table t = read_csv(file);
            REQUIRE(t.rows() == 12);
            REQUIRE(t.columns[0].name == "sample");
            std::set<std::string> samples;
            double right = 0, squares = 0;
            for (index_t row = 0; row < 12; ++row) {
                samples.insert(t.at("sample").word(row));
                if (target == "kind") {
                    right += t.at("class").word(row) == t.at("predicted").word(row);
                    CHECK(t.at("p_even").number(row) + t.at("p_odd, too").number(row) == Approx(1));
                    CHECK((t.at("p_even").number(row) >= 0.5) == (t.at("predicted").word(row) == "even"));
                } else {
                    const double error = t.at("predicted_size").number(row) - t.at("size").number(row);
                    squares += error * error;
                    CHECK(std::fmod(t.at("size").number(row) - 100 + 1e-3, 3.0) < 2e-3);
                }
            }
            CHECK(samples.size() == 12);
            if (target == "kind")
                CHECK(right / 12 == Approx(end["test_accuracy"].get<double>()));
            else
                CHECK(std::sqrt(squares / 12) == Approx(end["test_rmse_size"].get<double>()).epsilon(1e-5));
            std::string names;
            for (index_t row = 0; row < 12; ++row) names += t.at("sample").word(row) + '\n';
            if (ranks == 1) first = names;
            CHECK(names == first);  // in the order of the data
        }
    }
    session_options options{.out = folder / "refused", .resume = {}, .max_steps = -1};
    options.predictions = folder / "p.csv";
    CHECK_THAT(message_of([&] { train(1, options, {}, workload_of(folder / "t.csv", "kind", "test_every = 0\n")); }),
               Contains("there is no test; set train.test_every"));
    std::string letters;
    for (int i = 0; i < 400; ++i) letters += static_cast<char>('a' + i * i % 7);
    write(folder / "tinyshakespeare.txt", letters);
    CHECK_THAT(message_of([&] {
                   train(1, options, {},
                         "[data]\nformat = 'text'\npath = '" + folder.path.string() +
                             "'\n[data.text]\nlength = 4\n[model]\nkind = 'transformer'\n"
                             "embedding_dim = 4\nheads = 2\nblocks = 1\n[train]\nepochs = 1\n");
               }),
               Contains("--predictions writes a row a sample; each sample of these data has 4 labels"));
    CHECK_THAT(
        message_of([&] { train(2, options, {}, workload_of(folder / "t.csv", "kind", "[parallel]\npipeline = 2\n")); }),
        Contains("the ranks share the network"));
}

TEST_CASE("a state knows what the data taught: other rows do not go on with it", "[session]") {
    const ::temporary_folder folder;
    write(folder / "t.csv", rows_of_table());
    const std::string text = workload_of(folder / "t.csv", "kind");
    train(1, {.out = folder / "run", .resume = {}, .max_steps = 3}, {}, text);
    write(folder / "t.csv", rows_of_table(0.5));
    CHECK_THAT(message_of([&] { train(1, {.out = {}, .resume = folder / "run", .max_steps = -1}, {}, text); }),
               Contains("learned 'b: mean ") && Contains("here they give 'b: mean "));
    write(folder / "t.csv", rows_of_table());
    CHECK(train(1, {.out = {}, .resume = folder / "run", .max_steps = -1}, {}, text)["finished"] == true);
}

}  // namespace cairn::test
