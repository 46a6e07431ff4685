#pragma once
// The output of a run at its end: trace.json, report.html and record.json, and a table on the terminal. record.json is
// written last: if it says that the run is finished, the other files are complete.

#include <cairn/core/memory.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/train/metrics_log.hpp>
#include <cairn/train/process.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/report_page.hpp>
#include <cairn/train/run_directory.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_parts.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// The end of a run, as the loop saw it.
struct run_outcome {
    bool interrupted = false;
    double seconds = 0, seconds_here = 0;  // of all processes of the run, and of this one
    nlohmann::json launches = {};          // launches.hpp
    std::optional<double> joules;          // of the processors of rank 0's machine, as it counts them
    std::string why_no_joules;
    int skipped_steps = 0;
    evaluation test;               // of the last test
    metric_list metrics;           // likewise
    nlohmann::json steps = {};     // of a simulated run: the terms of each (step_terms.hpp)
    double joules_a_step = 0;      // likewise
    nlohmann::json states = {};    // what versions of the state cost (run_versions.hpp)
    std::string initialised = {};  // what --init took, and what not
};

/// Whether record.json says that the run came to its end with `steps` updates. Throws naming file and field of another
/// type than a run writes.
inline bool is_complete(const run_directory& directory, std::int64_t steps) {
    const std::filesystem::path file = directory.file("record.json");
    std::ifstream in(file);
    if (!in) return false;
    const nlohmann::json record = nlohmann::json::parse(in, nullptr, false);
    constexpr const char* way_out = "remove the file, and --resume writes it again";
    const auto expect = [&](bool fits, const char* what, const nlohmann::json& found, const char* expected) {
        expect_type(fits, file.string(), what, found, expected, way_out);
    };
    require(!record.is_discarded(), file.string(), ": not JSON; ", way_out);
    expect(record.is_object(), "the record", record, "an object");
    const nlohmann::json result = record.value("result", nlohmann::json::object());
    expect(result.is_object(), "field 'result'", result, "an object");
    const nlohmann::json finished = result.value("finished", nlohmann::json(false)),
                         done = result.value("steps", nlohmann::json(-1));
    expect(finished.is_boolean(), "field 'result.finished'", finished, "true or false");
    expect(done.is_number_integer(), "field 'result.steps'", done, "a whole number");
    return finished == true && done == steps && std::filesystem::exists(directory.file("report.html"));
}

/// Why steps were not recorded as the settings ask, if so.
template <Device D, class T>
void print_why_not_recorded(run_parts<D, T>& run) {
    if (!run.update.trainer) return;
    if (const std::string why = run.update.trainer->recorder().refusal(); !why.empty())
        std::fprintf(stderr,
                     "train.cuda_graph = on: steps were launched one by one, for they could not be recorded: %s\n",
                     why.c_str());
}

namespace detail {

/// The figures of a run: its last line of output, and `result` in record.json.
template <Device D, class T>
nlohmann::json result_of(run_parts<D, T>& run, const run_outcome& o, const metrics_log& log,
                         const std::vector<double>& rates) {
    const std::int64_t steps = run.update.algorithm->steps();
    const double stalled = run.batches.train->stats().stall_seconds;
    nlohmann::json result{{"workload", run.task.name},
                          {"finished", !o.interrupted && steps >= run.batches.last_step},
                          {"steps", steps},
                          {"epochs", run.batches.epochs_of(steps)},
                          {"algorithm", run.task.algorithm},
                          {"seed", run.task.seed},
                          {"ranks", run.world.size()},
                          {"seconds", o.seconds},
                          {"training_samples", run.task.data.train.size()},
                          {"samples_per_s", median(rates)},
                          {"peak_bytes", on_phantom_rank() ? D::memory().total().peak : peak_resident_bytes()},
                          {"skipped_steps", o.skipped_steps},
                          {"stall_fraction", o.seconds_here > 0 ? stalled / o.seconds_here : 0},
                          {"skipped_samples", run.batches.train->stats().skipped}};
    if (o.joules) result["joules"] = *o.joules;
    result["joules_are"] = !o.joules           ? "not measured: " + o.why_no_joules
                           : on_phantom_rank() ? "modelled, of all ranks and links"
                                               : "measured";
    if (on_phantom_rank()) result["batch"] = run.task.batch;
    if (on_phantom_rank()) result["joules_a_step"] = o.joules ? nlohmann::json(o.joules_a_step) : nlohmann::json();
    if (const auto loss = log.recent_loss()) result["train_loss"] = *loss;
    if (o.test.count) result["test_loss"] = o.test.loss();
    if (run.update.trainer) result["flops_per_sample"] = run.model.training_flops;
    if (run.update.trainer) result["most_loss_over_start"] = run.update.divergence.most;
    if (run.model.scaler) result["loss_scale"] = run.model.scaler->scale();
    if (run.update.trainer) result["recorded_steps"] = run.update.trainer->recorder().launched();
    for (const auto& [figure, value] : o.metrics) result["test_" + figure] = value;
    if (run.update.curvature)
        for (const auto& [guard, times] : run.update.curvature->guards()) {
            auto most = static_cast<double>(times);  // of all ranks, some of which act together
            all_reduce(run.world, std::span<double>(&most, 1), {.op = reduction::max});
            result["guards"][guard] = static_cast<std::int64_t>(most);
        }
    return result;
}

}  // namespace detail

/// Collective: rank 0 writes the files into `directory`, prints, and returns the figures; the others return nothing.
template <Device D, class T>
nlohmann::json write_report(run_parts<D, T>& run, const run_directory* directory, const run_outcome& o,
                            const metrics_log& log) {
    const std::vector<double> rates = log.rates();
    const nlohmann::json result = detail::result_of(run, o, log, rates),
                         memory = memory_by_category(D::memory());  // before the machine's ceilings are measured
    const std::vector<std::string> traces = traces_of_all_ranks(run.world),
                                   places = on_phantom_rank() ? std::vector<std::string>{} : places_of_ranks(run.world);
    if (!run.is_root()) return {};
    std::vector<std::string> diagnostics =
        run.update.curvature ? run.update.curvature->diagnostics() : std::vector<std::string>{};
    print_why_not_recorded(run);
    if (result.contains("guards")) diagnostics.push_back("how often guards acted: " + result["guards"].dump());
    for (const std::string& line : diagnostics) std::fprintf(stderr, "%s\n", line.c_str());

    // An interrupted process may not have the time to measure the machine.
    using number = std::conditional_t<std::same_as<T, float16>, float, T>;  // of the ceilings, which are the host's
    nlohmann::json record = record_of(run.task.name, result, o.metrics, rates, o.launches);
    record.update(origin_of_record(run.task.settings.resolved_values(), places));
    if (!o.interrupted && !on_phantom_rank() && asked_for_ceilings()) add_ceilings<number>(record["machine"]);
    const std::string& simulated_on = run.task.options.machine;
    if (!simulated_on.empty()) record["simulated"] = {{"machine", simulated_on}, {"steps", o.steps}};
    record["memory"] = memory;
    if (!o.states.is_null()) record["states"] = o.states;
    if (!o.initialised.empty()) record["initialised"] = o.initialised;
    record["device"] = D::name;
    record["batch"] = run.task.batch;
    record["parameters"] = run.model.parameters;
    if (run.update.curvature)
        record["preconditioner"] = diagnostics, record["preconditions"] = run.update.curvature->scope();
    const nlohmann::json profile = profile_json(trace::global().events(), record["machine"]);
    if (!trace::global().events().empty() || !std::filesystem::exists(directory->file("trace.json")))
        directory->write("trace.json", joined_traces(traces));  // else there is one of a process before this one
    directory->write("report.html",
                     report_html({run.task.name + (simulated_on.empty() ? "" : ", simulated on " + simulated_on),
                                  detail::printable(record), detail::printable(log.lines()), profile.dump(),
                                  detail::printable(examples_json(o.test, run.task.data.info.names)),
                                  run.task.settings.resolved()}));
    directory->write("record.json", detail::printable(record, 1) + '\n');
    print_result(run.task.name, result, o.metrics, o.interrupted, directory->file("report.html").string());
    return result;
}

}  // namespace cairn
