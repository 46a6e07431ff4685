#pragma once
// train --throughput: training steps on one batch of generated data, timed. With a table, also the layers, or the
// stages of a pipeline (--profile).

#include <cairn/core/summary.hpp>
#include <cairn/perf/machine.hpp>
#include <cairn/perf/rapl.hpp>
#include <cairn/train/measured_kernels.hpp>
#include <cairn/train/pipeline_profile.hpp>
#include <cairn/train/process.hpp>
#include <cairn/train/profile.hpp>
#include <cairn/train/progress.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/report.hpp>
#include <cairn/train/run_parts.hpp>
#include <cairn/train/shared_kernels.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>
#include <vector>

namespace cairn {

namespace detail {

constexpr int throughput_warm_up = 3;      // steps
constexpr double throughput_seconds = 12;  // of measured steps, where their number is not given

/// Samples a second and seconds of each measured step, and how many were skipped.
struct timed_steps {
    std::vector<double> rates, seconds;
    int skipped = 0;
    double stall = 0;              // seconds a step that waited for its batch
    std::optional<double> joules;  // a step, on rank 0: of all simulated ranks, or of this machine
};

/// Collective. `steps`: -1 for as many as fill throughput_seconds.
template <Device D, class T>
timed_steps time_steps(run_parts<D, T>& run, std::int64_t steps, bool traced) {
    require(run.update.trainer != nullptr, "--throughput and --profile time steps of train.algorithm = gradient; of ",
            run.task.algorithm, " a run's metrics.jsonl has the samples a second of each iteration");
    auto b = run.batches.train->next();
    require(b.has_value(), "throughput: no batch");
    choose_kernels_of_ranks(run);
    const int warm_up = on_phantom_rank() ? 1 : throughput_warm_up;  // there is nothing to warm
    if (steps < 0 && on_phantom_rank()) steps = 2;                   // one is like the other
    if (run.task.options.on_start) run.task.options.on_start(warm_up + steps);
    const stopwatch warming;
    for (int i = 0; i < warm_up; ++i) run.update.trainer->step({*b, run.task.micro_batches});
    const double estimate = broadcast_from_root(run.world, warming.seconds() / warm_up);
    if (steps < 0) steps = std::clamp<std::int64_t>(static_cast<std::int64_t>(throughput_seconds / estimate), 5, 2000);
    D::memory().reset_peaks();
    run.update.trainer->take_saved_after_forward();
    if (run.replicas.ranks) run.replicas.ranks->gradients.reducer().reset_time();
    trace::global().clear();
    trace::global().enable(traced);
    timed_steps all;
    progress_line line(run.is_root());
    std::optional<measured_kernels> kernels;
    if (!run.task.options.kernels.empty()) kernels.emplace();
    perf::rapl counted;
    const auto joules_so_far = [&] {
        return on_phantom_rank() ? std::optional(phantom_here->joules()) : counted.joules();
    };
    const double joules_before = run.is_root() ? joules_so_far().value_or(-1) : -1;
    run.batches.train->reset_stats();
    // Generated data are one batch; a simulated strategy of reading takes time in each step.
    const bool reads = on_phantom_rank() && run.task.data.reading;
    for (std::int64_t i = 0; i < steps; ++i) {
        const stopwatch watch;
        if (reads) {
            b.reset();
            while (!b) b = run.batches.train->next();  // none at the end of an epoch
        }
        const step_result done =
            run.update.trainer->step({*b, run.task.micro_batches}, {interrupt_guard::requested(), 0});
        all.skipped += done.skipped;
        all.seconds.push_back(watch.seconds());
        all.rates.push_back(static_cast<double>(done.samples) / all.seconds.back());
        line.show(i + 1, steps, concat("step ", i + 1, " of ", steps));
        if (done.stop) break;
    }
    if (joules_before >= 0)
        if (const double after = joules_so_far().value_or(-1); after > joules_before)
            all.joules = (after - joules_before) / static_cast<double>(all.rates.size());
    trace::global().enable(false);
    all.stall = run.batches.train->stats().stall_seconds / static_cast<double>(all.rates.size());
    line.print("");
    if (kernels && run.is_root()) write_kernels(run.task.options.kernels, *kernels);
    return all;
}

/// Prints the communication of gradients, and returns it.
template <class Ranks>
nlohmann::json communication_of(Ranks& ranks, double steps) {
    const reduction_time& t = ranks.gradients.reducer().time();
    std::printf(
        "communication of gradients: %.2f ms a step, %.2f ms of it not hidden behind backward: %.0f %% hidden\n",
        1e3 * t.busy / steps, 1e3 * t.exposed / steps, 100 * t.hidden_share());
    if (const auto* autotuned = ranks.gradients.autotuned())
        std::printf("compression autotuner, link of %.1f us and %.3g MB/s: %s\n", 1e6 * autotuned->link().alpha,
                    1e-6 / autotuned->link().beta, autotuned->describe().c_str());
    return {{"busy_s", t.busy / steps}, {"exposed_s", t.exposed / steps}, {"hidden_share", t.hidden_share()}};
}

/// Bytes of this rank's pool as train.activation_memory = auto plans them; null elsewhere.
template <Device D, class T>
nlohmann::json predicted_peak(const run_parts<D, T>& run) {
    if (run.update.activations && run.update.activations->plan()) return run.update.activations->plan()->predicted_peak;
    return {};
}

}  // namespace detail

/// Collective. Times `steps` training steps, or about 12 s of them for -1; rank 0 prints the measurements and returns
/// them. `table`: of the layers too.
template <Device D, class T>
nlohmann::json measure_throughput(run_parts<D, T>& run, std::int64_t steps, bool table) {
    // On the host layers end when their calls return, and its ceilings are measured; a device's are its profiler's.
    constexpr bool on_host = std::same_as<D, cpu>;
    require(on_host || !table || run.model.plan,
            "--profile times layers on the host, and stages of a pipeline; a profiler of ", D::name,
            " tells more, such as nsys profile train ... --throughput");
    const auto [rates, seconds, skipped, stall, joules] = detail::time_steps(run, steps, table && !run.model.plan);
    const index_t resident = peak_resident_bytes(), pool_peak = D::memory().total().peak;
    nlohmann::json memory = memory_by_category(D::memory());
    if (const index_t saved = run.update.trainer->take_saved_after_forward();
        saved > 0)  // 0 where the last stage is elsewhere
        memory["saved"] = saved;
    std::optional<pipeline_profile> stages;
    if (table && run.model.plan) stages = profile_pipeline(run, static_cast<int>(rates.size()));
    if (!run.is_root()) return {};
    print_why_not_recorded(run);
    run.model.memory_limit.reset();  // what follows is beyond it, and after the memory was read
    double peak_flops = 0, peak_bytes = 0;
    const bool has_ceilings = on_host && !on_phantom_rank();
    if constexpr (on_host)
        if (has_ceilings) {
            peak_flops = 1e9 * perf::measured_matrix_peak<T>().gflops;
            peak_bytes = 1e9 * perf::measured_bandwidth();
        }
    const double rate = median(rates), flops = run.model.training_flops;
    if (stages)
        print_profile(std::cout, *stages);
    else if (table)
        print_profile(std::cout, profile_of(trace::global().events()), static_cast<int>(rates.size()), peak_flops,
                      peak_bytes);
    std::printf("%s, batch %td, %s: median %.1f samples/s over %zu steps (lowest %.1f, highest %.1f)\n",
                run.task.name.c_str(), run.task.batch, run.processors().c_str(), rate, rates.size(),
                *std::min_element(rates.begin(), rates.end()), *std::max_element(rates.begin(), rates.end()));
    std::printf("%.1f effective GFLOP/s", rate * flops / 1e9);
    if (has_ceilings)
        std::printf(" = %.1f %% of the measured matrix peak of %.0f GFLOP/s", 100 * rate * flops / peak_flops,
                    peak_flops / 1e9);
    std::printf("\n");
    if (joules)
        std::printf("%.4g J a step, %s\n", *joules,
                    on_phantom_rank() ? "modelled, of all ranks and links" : "measured, of this machine's processors");
    for (const auto& [use, bytes] : memory.items())
        std::printf("peak %-14s %9.1f MiB\n", use.c_str(), bytes.template get<double>() / (1 << 20));
    if (!on_phantom_rank())
        std::printf("peak %-14s %9.1f MiB\n", "of the process", static_cast<double>(resident) / (1 << 20));
    nlohmann::json communication;
    if (run.replicas.ranks)
        communication = detail::communication_of(*run.replicas.ranks, static_cast<double>(rates.size()));
    return {{"workload", run.task.name},
            {"ranks", run.world.size()},
            {"skipped_steps", skipped},
            {"loss_scale", run.model.scaler ? nlohmann::json(run.model.scaler->scale()) : nlohmann::json()},
            {"communication", communication},
            {"samples_per_s", rate},
            {"samples_per_s_of_tenths", static_cast<double>(run.task.batch) / median(means_of_tenths(seconds))},
            {"data_stall_s", stall},
            {"joules_a_step", joules ? nlohmann::json(*joules) : nlohmann::json()},
            {"joules_are", !joules             ? nlohmann::json()
                           : on_phantom_rank() ? "modelled"
                                               : "measured"},
            {"peak_bytes", on_phantom_rank() ? pool_peak : resident},
            {"batch", run.task.batch},
            {"threads", threads()},
            {"steps", rates.size()},
            {"parameters", run.model.parameters},
            {"flops_per_sample", flops},
            {"device", D::name},
            {"recorded_steps", run.update.trainer->recorder().launched()},
            {"share_of_matrix_peak", has_ceilings ? nlohmann::json(rate * flops / peak_flops) : nlohmann::json()},
            {"pool_peak_bytes", pool_peak},
            {"predicted_peak_bytes", detail::predicted_peak(run)},
            {"memory", memory},
            {"pipeline", stages ? to_json(*stages) : nlohmann::json()}};
}

}  // namespace cairn
