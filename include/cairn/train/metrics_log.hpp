#pragma once
// metrics.jsonl: one JSON object a line.
//   of training, every train.log_every steps   step, epoch, loss, lr, samples_per_s, seconds
//                                              [, joules, train_accuracy, …]
//   of a test                                  step, test_loss, test_FIGURE …
// Means of training are over the steps since the last line.

#include <cairn/core/summary.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/run_directory.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

namespace detail {

/// Names of classes and samples may be those of files, in any encoding.
inline std::string printable(const nlohmann::json& j, int indent = -1) {
    return j.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace detail

/// Throws unless `fits`, naming what in a run's file is of another type than a run writes, and the way out.
inline void expect_type(bool fits, const std::string& where, const std::string& what, const nlohmann::json& found,
                        const char* expected, const char* way_out) {
    require(fits, where, ": ", what, " is of type ", found.type_name(), ", expected ", expected, "; ", way_out);
}

/// A line of metrics.jsonl: an object of numbers (null: not finite), of which "step" is a whole one; nothing for half a
/// line, which a run that was killed left. Throws naming `where` it is, the field and what is expected.
inline std::optional<nlohmann::json> parse_metrics(const std::string& text, const std::string& where) {
    nlohmann::json entry = nlohmann::json::parse(text, nullptr, false);
    if (entry.is_discarded()) return std::nullopt;
    const auto expect = [&](bool fits, const std::string& what, const nlohmann::json& found, const char* expected) {
        expect_type(fits, concat(where, ": ", text), what, found, expected, "mend or remove the line");
    };
    expect(entry.is_object(), "the line", entry, "an object");
    expect(entry.contains("step") && entry["step"].is_number_integer(), "field 'step'",
           entry.value("step", nlohmann::json()), "a whole number");
    for (const auto& [field, value] : entry.items())
        expect(value.is_number() || value.is_null(), concat("field '", field, "'"), value, "a number");
    return entry;
}

/// Of the steps since the last line; a resumed run goes on with it.
struct run_progress {
    double loss_sum = 0;
    std::int64_t steps = 0;
    std::array<double, 2> hits{};    // training samples of this rank classified right, and seen
    std::int64_t skipped_steps = 0;  // since the run began
};

/// The lines so far, and the steps since the last one. Without a directory nothing is written: all ranks but one.
class metrics_log {
public:
    /// Takes over the lines of a run that goes on from step `until`; lines of later steps, which that run did before it
    /// was killed, go. Returns the seconds that the last of all lines tells, 0 without one.
    double resume(const run_directory& directory, std::int64_t until) {
        std::ifstream in(directory.file(name));
        std::string kept;
        int number = 0;
        double seconds = 0;
        for (std::string text; std::getline(in, text);) {
            ++number;
            const auto entry = parse_metrics(text, concat(directory.file(name).string(), ':', number));
            if (entry && has_number(*entry, "seconds")) seconds = (*entry)["seconds"].get<double>();
            if (!entry || (*entry)["step"].get<std::int64_t>() > until) continue;
            remember(*entry);
            kept += text + '\n';
        }
        directory.write(name, kept);
        return seconds;
    }

    void add(const run_directory* directory, const nlohmann::json& entry) {
        remember(entry);
        if (directory) directory->append(name, detail::printable(entry));
    }

    /// Counts a step: its loss, and samples a second.
    void count_step(double loss, double rate) {
        now_.loss_sum += loss;
        ++now_.steps;
        rates_.push_back(rate);
    }

    std::int64_t steps_since_line() const { return now_.steps; }
    run_progress& progress() { return now_; }
    bool has_test_of(std::int64_t step) const { return !last_test_.empty() && last_test_["step"] == step; }

    /// A line of the steps since the last one: loss and samples_per_s. The rest is up to the caller.
    nlohmann::json take_steps() {
        const std::vector<double> window(rates_.end() - std::min<std::ptrdiff_t>(now_.steps, std::ssize(rates_)),
                                         rates_.end());
        nlohmann::json entry = nlohmann::json::object();
        entry["loss"] = now_.loss_sum / static_cast<double>(now_.steps);
        entry["samples_per_s"] = median(window);
        now_.loss_sum = 0;
        now_.steps = 0;
        return entry;
    }

    /// A figure of the last line of training, if it has it.
    std::optional<double> last(const char* figure) const {
        if (!has_number(last_, figure)) return std::nullopt;
        return last_[figure].get<double>();
    }
    /// The mean training loss of late.
    std::optional<double> recent_loss() const {
        if (!last_.empty()) return last_["loss"].get<double>();
        if (now_.steps > 0) return now_.loss_sum / static_cast<double>(now_.steps);
        return std::nullopt;
    }

    /// Samples a second of each step of this process; of each line, where it did none.
    std::vector<double> rates() const {
        if (!rates_.empty()) return rates_;
        std::vector<double> logged;
        for (const auto& entry : lines_)
            if (has_number(entry, "samples_per_s")) logged.push_back(entry["samples_per_s"].get<double>());
        return logged;
    }
    /// Of the last `n` steps.
    std::vector<double> recent_rates(std::ptrdiff_t n) const {
        return {rates_.end() - std::min(n, std::ssize(rates_)), rates_.end()};
    }

    const nlohmann::json& lines() const { return lines_; }

    static constexpr const char* name = "metrics.jsonl";

private:
    void remember(const nlohmann::json& entry) {
        lines_.push_back(entry);
        if (has_number(entry, "loss")) last_ = entry;
        if (has_number(entry, "test_loss")) last_test_ = entry;
    }

    static bool has_number(const nlohmann::json& entry, const char* key) {
        return entry.contains(key) && entry[key].is_number();
    }

    nlohmann::json lines_ = nlohmann::json::array(), last_ = nlohmann::json::object(),
                   last_test_ = nlohmann::json::object();
    std::vector<double> rates_;
    run_progress now_;
};

}  // namespace cairn
