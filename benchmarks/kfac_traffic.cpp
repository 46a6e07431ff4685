// Memory and traffic of K-FAC on 1, 2, 4 and 8 ranks, measured and by the closed forms of course/kfac.md.
//
//   kfac_traffic [--model resnet20] [--form eigen] [--ranks 1,2,4,8]
//
// Ranks are threads of this process; a step of statistics, decompositions and directions is taken by each placement
// (COMM-OPT, HYBRID with half the ranks, MEM-OPT) with whole and with sharded statistics. What is sent is counted by
// comm/counting_communicator.hpp, what is kept between steps by the memory pool (averages and decompositions, all ranks
// together). A row that differs from its closed form is marked, and the program fails. The last line is one JSON
// object.

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/parallel/kfac_ranks.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "kfac_model.hpp"

namespace {

using namespace cairn;
using counted = counting_communicator<threads_communicator>;

/// Bytes of all ranks together, and what one rank keeps at most.
struct figures {
    std::int64_t sums = 0, decompositions = 0, directions = 0, kept = 0;
    bool operator==(const figures&) const = default;
};

struct row {
    int ranks = 1, workers = 1;
    bool sharded = false;
    figures measured, closed;
    std::int64_t most = 0;  // that one rank keeps
};

/// Bytes that the pool takes for n floats.
std::int64_t bytes_of(std::int64_t n) {
    constexpr std::int64_t line = memory_pool::alignment;
    return (4 * n + line - 1) / line * line;
}

/// The formulas of course/kfac.md, with the placement as data for who keeps what.
void fill_closed_forms(row& r, kfac<float>& k, const kfac_assignment* place, kfac_form form) {
    std::int64_t triangles = 0, sent = 0, directions = 0;
    std::vector<std::int64_t> kept(static_cast<std::size_t>(r.ranks));
    auto& blocks = k.blocks();
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        directions += blocks[i].size();
        blocks[i].each_factor([&](kfac_factor<float>& f, char side) {
            const std::int64_t n = f.statistics.size(), triangle = n * (n + 1) / 2;
            const std::int64_t decomposition = bytes_of(n * n) + (form == kfac_form::eigen ? bytes_of(n) : 0);
            triangles += triangle;
            sent += form == kfac_form::eigen ? n * n + n : triangle;
            for (int rank = 0; rank < r.ranks; ++rank) {
                const int owner = !place ? 0 : side == 'a' ? place->layers()[i].a_worker : place->layers()[i].g_worker;
                auto& here = kept[static_cast<std::size_t>(rank)];
                if (!r.sharded || rank == owner) here += bytes_of(n * n);
                if (!place || place->is_gradient_worker(i, rank)) here += decomposition;
            }
        });
    }
    const std::int64_t p = r.ranks, m = r.workers;
    r.closed = {4 * (r.sharded ? 1 : 2) * (p - 1) * triangles, 4 * (m - 1) * sent, 4 * m * (p / m - 1) * directions, 0};
    for (const std::int64_t bytes : kept) {
        r.closed.kept += bytes;
        r.most = std::max(r.most, bytes);
    }
}

/// Bytes that this rank sent in collectives whose name ends so.
std::int64_t sent_in(const counted& c, std::string_view name) {
    std::int64_t bytes = 0;
    for (const auto& [call, sum] : c.calls())
        if (call.ends_with(name)) bytes += sum.bytes;
    return bytes;
}

row measure(const std::string& model, kfac_form form, int ranks, int workers, bool sharded) {
    row r{.ranks = ranks, .workers = workers, .sharded = sharded, .measured = {}, .closed = {}};
    std::atomic<std::int64_t> sums{0}, decompositions{0}, directions{0};
    const auto live = [] { return memory_pool::host().use_of(memory_category::optimizer).live; };
    const std::int64_t before = live();
    run_ranks(ranks, [&](threads_communicator& world) {
        sequential<float> net = kfac_model(model);
        arena<float> weights(net.parameters(), 1);
        counted c(world.split(0, world.rank()));
        auto roles = std::make_unique<kfac_work_assignment<float>>();
        const kfac_ranks<counted>* who = nullptr;
        if (ranks > 1) {
            kfac_ranks_config how{.overlap = false};
            how.statistics = sharded ? kfac_statistics::sharded : kfac_statistics::all;
            how.place.grad_worker_fraction = static_cast<double>(workers) / ranks;
            auto several = std::make_unique<kfac_ranks<counted>>(c, how);
            who = several.get();
            roles = std::move(several);
        }
        kfac_config config{.factor_update_interval = 1000, .inverse_update_interval = 1000};
        config.form = form;
        kfac<float> k(weights, config, std::move(roles));
        const tensor<float> x = kfac_input(model, 2, world.rank());
        const auto backward = [&](curvature_listener* listener) {
            pass_context p{.random = {.step = 1}, .input_gradient = false};
            p.curvature = listener;
            saved_tensors<float> saved;
            tensor<float> y = net.forward(x.share(), saved, p);
            net.backward(std::move(y), saved, p);
        };
        backward(k.discover());
        weights.zero_grad();
        backward(k.begin_step());
        k.precondition(2.0 * ranks, 0.1);  // statistics, decompositions and directions
        const std::int64_t first = sent_in(c, "all-gather"), reduced = sent_in(c, "all-reduce");
        // Messages besides the sums: rows of each block, state of each factor.
        std::vector<double> rows(k.blocks().size());
        std::vector<float> state(1);
        for (auto& b : k.blocks()) b.each_factor([&](kfac_factor<float>&, char) { state.push_back(0); });
        all_reduce(c, std::span<double>(rows));
        all_reduce(c, std::span<float>(state), {.op = reduction::max});
        std::vector<double> means(state.size() - 1);
        if (sharded && form == kfac_form::inverse) all_reduce(c, std::span<double>(means), {.op = reduction::max});
        const std::int64_t beside = sent_in(c, "all-reduce") - reduced;
        sums += sharded ? sent_in(c, "reduce-scatter") : reduced - beside;
        k.begin_step();
        k.precondition(2.0 * ranks, 0.1);  // directions alone
        directions += sent_in(c, "all-gather") - first;
        decompositions += first - (sent_in(c, "all-gather") - first);
        barrier(world);
        if (world.rank() == 0) {
            r.measured.kept = live() - before;
            fill_closed_forms(r, k, who ? &who->place() : nullptr, form);
        }
        barrier(world);
    });
    r.measured.sums = sums, r.measured.decompositions = decompositions, r.measured.directions = directions;
    return r;
}

}  // namespace

int main(int argc, char** argv) {
    std::string model = "resnet20", form = "eigen";
    std::vector<int> ranks{1, 2, 4, 8};
    CLI::App app{"Memory and traffic of K-FAC by placement, measured and in closed form."};
    app.add_option("--model", model)->check(CLI::IsMember(kfac_models));
    app.add_option("--form", form)->check(CLI::IsMember({"eigen", "inverse"}));
    app.add_option("--ranks", ranks)->delimiter(',')->check(CLI::Range(1, 64));
    CLI11_PARSE(app, argc, argv);
    set_threads(1);
    std::printf("%s, %s form; MB that all ranks together send or keep, MB that the rank with most keeps\n",
                model.c_str(), form.c_str());
    std::printf("%5s  %-8s  %-8s %20s %20s %20s %20s %9s\n", "ranks", "place", "sums", "factors sent",
                "decompositions sent", "directions sent", "kept by all", "by one");
    nlohmann::json record{{"model", model}, {"form", form}, {"rows", nlohmann::json::array()}};
    bool right = true;
    try {
        for (const int p : ranks)
            for (const bool sharded : {false, true})
                for (int m = p; m >= 1; m = m == p && p > 2 ? p / 2 : m == 1 ? 0 : 1) {
                    if (p % m || (p == 1 && sharded)) continue;
                    const row r =
                        measure(model, form == "eigen" ? kfac_form::eigen : kfac_form::inverse, p, m, sharded);
                    const char* place = m == p ? "COMM-OPT" : m == 1 ? "MEM-OPT" : "HYBRID";
                    const auto mb = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
                    const bool same = r.measured == r.closed;
                    right = right && same;
                    std::printf("%5d  %-8s  %-8s %9.3f = %8.3f %9.3f = %8.3f %9.3f = %8.3f %9.3f = %8.3f %9.3f%s\n", p,
                                place, sharded ? "sharded" : "all", mb(r.measured.sums), mb(r.closed.sums),
                                mb(r.measured.decompositions), mb(r.closed.decompositions), mb(r.measured.directions),
                                mb(r.closed.directions), mb(r.measured.kept), mb(r.closed.kept), mb(r.most),
                                same ? "" : "  DIFFERS");
                    record["rows"].push_back({{"ranks", p},
                                              {"workers", m},
                                              {"sharded", sharded},
                                              {"sums", r.measured.sums},
                                              {"decompositions", r.measured.decompositions},
                                              {"directions", r.measured.directions},
                                              {"kept", r.measured.kept},
                                              {"kept_by_one", r.most},
                                              {"equal", same}});
                }
    } catch (const error& e) {
        std::fprintf(stderr, "kfac_traffic: %s\n", e.what());
        return 1;
    }
    std::printf("%s\n", record.dump().c_str());
    return right ? 0 : 1;
}
