// A pipeline's schedule in time, its bubbles and memory compared with their closed forms.
//
//   schedule zb_h1 --stages 4 --micro-batches 8 [--virtual-stages 2] [--costs 1,1.2,0.8] [--hop 0.1] [--max-saved 3]
//   schedule FILE.csv           a schedule written by hand or by PyTorch: validated, then the same
//   … --csv | --json | --svg FILE
//   … --last-stage 1.15 --energy benchmarks/machines/frontera-1056.toml   joules, and with frequency on slack
//   schedule zb_h1 --stages 4 --micro-batches 8 --trace RUN/trace.json   what ran beside the plan at its times; --json
//
// --stages: ranks of the pipeline. --costs: times of F, I and W of all stages of a rank; a chunk takes its share.

#include <cairn/parallel/pipeline/csv.hpp>
#include <cairn/parallel/pipeline/grid.hpp>
#include <cairn/parallel/pipeline/rendezvous.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "schedule/energy.hpp"
#include "schedule/measured.hpp"
#include "schedule/svg.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace cairn;

struct settings {
    std::string name, svg, trace, machine;
    schedule_shape shape{0, 0, 0};
    std::vector<double> costs{1, 1, 1};
    double hop = 0, max_saved = 0, last_stage = 1;
    int step = -1;
    bool csv = false, json = false;
};

std::string list_of(const std::vector<double>& numbers) {
    std::string text;
    for (const double n : numbers) text += concat(text.empty() ? "" : " ", n);
    return text;
}

nlohmann::json number_or_null(double x) { return std::isnan(x) ? nlohmann::json() : nlohmann::json(x); }

nlohmann::json record(const pipeline_program& program, const pipeline_times& t, const closed_form& form) {
    nlohmann::json lists = nlohmann::json::array();
    for (std::size_t r = 0; r < program.actions.size(); ++r) {
        nlohmann::json list = nlohmann::json::array();
        for (std::size_t i = 0; i < program.actions[r].size(); ++i)
            list.push_back({{"action", concat(program.actions[r][i])},
                            {"start", t.actions[r][i].start},
                            {"end", t.actions[r][i].end}});
        lists.push_back(std::move(list));
    }
    return {{"schedule", program.name},
            {"ranks", program.ranks},
            {"micro_batches", program.micro_batches},
            {"virtual_stages", program.virtual_stages},
            {"rank_of_stage", program.rank_of_stage},
            {"makespan", t.makespan},
            {"makespan_bubble", t.makespan_bubble},
            {"own_window_bubble", t.own_window_bubble},
            {"peak_saved_micro_batches", t.peak},
            {"messages", pipeline_messages(program).size()},
            {"closed_form",
             {{"makespan_bubble", number_or_null(form.makespan_bubble)},
              {"own_window_bubble", number_or_null(form.own_window_bubble)},
              {"peak_saved_micro_batches", form.peak},
              {"formula", form.formula}}},
            {"actions", lists}};
}

void print_numbers(const pipeline_program& program, const pipeline_times& t, const closed_form& form) {
    const auto beside = [](double known) { return std::isnan(known) ? std::string() : concat("closed form ", known); };
    std::printf("makespan           %10.6g\n", t.makespan);
    std::printf("makespan bubble    %10.6g  %4.1f %%  %s%s\n", t.makespan_bubble, 100 * t.makespan_bubble / t.makespan,
                beside(form.makespan_bubble).c_str(),
                form.formula.empty() ? "" : concat("  [", form.formula, "]").c_str());
    std::printf("own-window bubble  %10.6g  %4.1f %%  %s\n", t.own_window_bubble,
                100 * t.own_window_bubble / t.makespan, beside(form.own_window_bubble).c_str());
    std::printf("peak saved         %s micro-batches by rank%s%s\n", list_of(t.peak).c_str(),
                form.peak.empty()                  ? ""
                : form.peak.size() < t.peak.size() ? ", closed form, worst rank: "
                                                   : ", closed form ",
                list_of(form.peak).c_str());
    std::printf("messages           %zu\n", pipeline_messages(program).size());
}

void print_heading(const pipeline_program& program) {
    std::printf("%s: %d ranks, %d micro-batches, %d %s a rank\n\n", program.name.c_str(), program.ranks,
                program.micro_batches, program.virtual_stages, program.virtual_stages == 1 ? "stage" : "stages");
}

/// The plan at the measured times above what ran.
void print_measured(const settings& s, const pipeline_program& plan) {
    const measured_schedule run = read_measured_schedule(s.trace, s.step);
    require(plan.ranks == run.program.ranks && plan.micro_batches == run.program.micro_batches &&
                plan.rank_of_stage == run.program.rank_of_stage,
            "trace ", s.trace, ": ", run.program.ranks, " ranks and ", run.program.micro_batches,
            " micro-batches; the plan has ", plan.ranks, " and ", plan.micro_batches, ", or other stages on them");
    const pipeline_times planned = simulate(plan, run.costs, s.hop);
    if (s.json) {
        const nlohmann::json both{{"plan", record(plan, planned, {})}, {"run", record(run.program, run.times, {})}};
        std::printf("%s\n", both.dump().c_str());
        return;
    }
    print_heading(plan);
    std::printf("plan at the run's mean times, seconds\n%s", schedule_grid(plan, planned).c_str());
    print_numbers(plan, planned, {});
    std::printf("\nrun%s\n%s", plan.actions == run.program.actions ? "" : ", in another order than the plan",
                schedule_grid(run.program, run.times).c_str());
    print_numbers(run.program, run.times, {});
    std::printf("\nplan / run         %10.4f\n", planned.makespan / run.times.makespan);
    if (!s.svg.empty()) {
        std::ofstream out(s.svg);
        require(bool{out << schedule_svg(run.program, run.times) << std::flush}, s.svg, ": cannot be written");
    }
}

void run(const settings& s) {
    const bool file = s.name.ends_with(".csv");
    const stage_costs whole{s.costs[0], s.costs[1], s.costs[2]};
    pipeline_program program;
    if (file && s.shape.ranks == 0 && s.shape.micro_batches == 0) {
        program = read_schedule_csv(s.name);
    } else {
        require(s.shape.ranks > 0 && s.shape.micro_batches > 0, "schedule ", s.name,
                ": --stages and --micro-batches are needed");
        schedule_costs costs{.max_saved = s.max_saved};
        if (s.name == "auto")
            costs.stages.assign(
                static_cast<std::size_t>(s.shape.ranks) * static_cast<std::size_t>(std::max(1, s.shape.virtual_stages)),
                whole / std::max(1, s.shape.virtual_stages));
        program = schedule_from(s.name, s.shape, costs);
    }
    validate(program);
    if (!s.trace.empty()) return print_measured(s, program);

    std::vector<stage_costs> stages = uniform_costs(program, whole);
    stages.back() = stages.back() / (1 / s.last_stage);
    const pipeline_times t = simulate(program, stages, s.hop);
    const closed_form form =
        file || s.hop > 0 || s.last_stage != 1 ? closed_form{} : schedule_closed_form(s.name, s.shape, whole);
    std::optional<schedule_energy> energy;
    if (!s.machine.empty()) energy = energy_of_schedule(program, stages, s.hop, s.machine);
    if (!s.svg.empty()) {
        std::ofstream out(s.svg);
        require(bool{out << schedule_svg(program, t) << std::flush}, s.svg, ": cannot be written");
    }
    if (s.csv) {
        std::printf("%s", schedule_csv(program).c_str());
    } else if (s.json) {
        nlohmann::json all = record(program, t, form);
        if (energy) all["energy"] = to_json(*energy);
        std::printf("%s\n", all.dump().c_str());
    } else {
        print_heading(program);
        std::printf("%s\n", schedule_grid(program, t).c_str());
        print_numbers(program, t, form);
        if (energy) print_energy(*energy);
    }
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    std::string names;
    for (const schedule_entry& entry : schedules()) names += concat(names.empty() ? "" : ", ", entry.name);
    CLI::App app{"A pipeline's schedule in time, its bubbles and memory."};
    app.add_option("name", s.name, "FILE.csv or one of " + names)->required();
    app.add_option("--stages", s.shape.ranks, "ranks of the pipeline")->check(CLI::Range(1, 100000));
    app.add_option("--micro-batches", s.shape.micro_batches, "micro-batches of a step")->check(CLI::Range(1, 1000000));
    app.add_option("--virtual-stages", s.shape.virtual_stages, "stages of a rank")->check(CLI::Range(1, 1000));
    app.add_option("--costs", s.costs, "times of F, I and W on a rank")
        ->delimiter(',')
        ->expected(3)
        ->check(CLI::Range(1e-12, 1e12));
    app.add_option("--hop", s.hop, "time of a message between two ranks")->check(CLI::Range(0.0, 1e12));
    app.add_option("--last-stage", s.last_stage, "times of the last stage, which has the loss, over the others'")
        ->check(CLI::Range(1e-3, 1e3));
    app.add_option("--energy", s.machine,
                   "this machine's joules of a step, costs in seconds; and with frequency on slack");
    app.add_option("--max-saved", s.max_saved, "auto: micro-batches that a rank may save")->check(CLI::Range(0.0, 1e9));
    app.add_flag("--csv", s.csv, "print the lists in PyTorch's format, which this program and train read");
    app.add_flag("--json", s.json, "print all of it as one JSON object");
    app.add_option("--svg", s.svg, "draw it into this file");
    app.add_option("--trace", s.trace, "a run's trace.json: what ran beside the plan at its measured times");
    app.add_option("--step", s.step, "of the trace, counted from 0; else the last");
    CLI11_PARSE(app, argc, argv);
    try {
        run(s);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "schedule: %s\n", e.what());
        return 1;
    }
    return 0;
}
