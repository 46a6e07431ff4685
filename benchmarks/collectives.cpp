// All-reduce by every algorithm, by MPI_Allreduce and by Gloo, in turn in one run, compared with the cost model.
//
//   mpirun -np 2 collectives [--quick] [--max-bytes 268435456] [--algorithms ring,tree] [--seconds 1.5]
//   mpirun -np 2 collectives --calibrate     measures messages and algorithms by size first, and stores what
//                                            `automatic` chooses from in ~/.cache/cairn/collectives.tsv, see
//                                            comm/collectives/selection.hpp
//   collectives --ranks 4                    ranks are threads; MPI and Gloo are left out; Gloo on several hosts, too
//
// Floats, in place, sum. A sample is as many calls as take about 2 ms, on the slowest rank, in an order drawn anew each
// round; medians. Bus bandwidth as nccl-tests counts it: bytes / seconds · 2 (p - 1) / p. The model gets the times of
// single messages, taken in turn with the all-reduces they make up, and nothing of the all-reduces. Ratio: the better
// of MPI and Gloo over auto, above 1 where auto is faster. The last line is one JSON object.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/perf/machine.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#if CAIRN_HAS_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#endif

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace cairn;
using cairn::index_t;

struct settings {
    index_t min_bytes = 1 << 10, max_bytes = index_t{256} << 20;
    double seconds = 1.5;  // for each size
    int ranks = 2;
    bool calibrate = false, quick = false;
    std::string algorithms;
    std::filesystem::path table = collectives_file();
};

std::string text_of_bytes(index_t n) {
    return n >= 1 << 20 ? concat(n >> 20, " MiB") : n >= 1 << 10 ? concat(n >> 10, " KiB") : concat(n, " B");
}

/// Seconds on the slowest rank, on all ranks.
template <Communicator C>
double slowest(C& c, double seconds) {
    recursive_doubling_all_reduce(c, std::span<double>(&seconds, 1), reduction::max);
    return seconds;
}

/// A thing to time, and its samples.
struct candidate {
    std::string name;
    std::function<void()> call;
    bool must_stay = false;  // else it drops out when it is far from the best
    std::vector<double> samples = {};
    double seconds() const { return median(samples); }
};

/// Samples all candidates in turn until the time is over. Collective; all ranks decide alike.
template <Communicator C>
void measure(C& c, std::vector<candidate>& all, double budget) {
    constexpr double sample_seconds = 2e-3;
    std::vector<int> calls(all.size(), 1);
    std::vector<bool> in(all.size(), true);
    for (std::size_t i = 0; i < all.size(); ++i) {  // how many calls a sample takes
        all[i].call();                              // tables, connections, page faults
        double one = 1;
        for (const int probe : {1, 20}) {  // one call alone may wait for a thread that sleeps
            if (probe > 1 && (one > 20e-3 || one < 1e-4)) break;
            barrier(c);
            const stopwatch watch;
            for (int k = 0; k < probe; ++k) all[i].call();
            one = slowest(c, watch.seconds()) / probe;
        }
        calls[i] = std::clamp(static_cast<int>(sample_seconds / std::max(1e-7, one)), 1, 1000);
    }
    const stopwatch whole;
    for (int round = 0; round < 3 || (round < 201 && slowest(c, whole.seconds()) < budget); ++round) {
        // In another order each round, the same on all ranks, and each from its own warm caches: what went before is
        // not measured.
        std::vector<std::size_t> order(all.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        const random_stream random{1, stream_of("order"), static_cast<std::uint32_t>(round)};
        for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.below(k, k)]);
        for (const std::size_t i : order) {
            if (!in[i]) continue;
            if (calls[i] > 1) all[i].call();
            barrier(c);
            const stopwatch watch;
            for (int k = 0; k < calls[i]; ++k) all[i].call();
            all[i].samples.push_back(slowest(c, watch.seconds()) / calls[i]);
        }
        if (round != 2) continue;
        double best = 1e300;
        for (const candidate& a : all) best = std::min(best, a.seconds());
        for (std::size_t i = 0; i < all.size(); ++i) in[i] = all[i].must_stay || all[i].seconds() < 2 * best;
    }
}

#if CAIRN_HAS_GLOO
/// Gloo over TCP on the loopback device, ranks of one host found through files.
class gloo_peer {
public:
    template <Communicator C>
    explicit gloo_peer(C& c) {
        const std::string folder =
            broadcast_text(c, (std::filesystem::temp_directory_path() / concat("cairn_gloo_", getpid())).string());
        if (c.rank() == 0) std::filesystem::create_directories(folder);
        barrier(c);
        gloo::rendezvous::FileStore store(folder);
        gloo::transport::tcp::attr where;
        where.iface = "lo";
        auto context = std::make_shared<gloo::rendezvous::Context>(c.rank(), c.size());
        context->connectFullMesh(store, device_ = gloo::transport::tcp::CreateDevice(where));
        context_ = context;
        barrier(c);
        if (c.rank() == 0) std::filesystem::remove_all(folder);
    }

    void all_reduce(std::span<float> data) {
        gloo::AllreduceOptions options(context_);
        options.setOutput(data.data(), data.size());
        options.setReduceFunction(
            static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
        gloo::allreduce(options);
    }

private:
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::Context> context_;
};
#endif

template <Communicator C>
class bench {
public:
    bench(C& c, const settings& s) : c_(c), s_(s), p_(c.size()), groups_(c) {
        data_.resize(static_cast<std::size_t>(s.max_bytes) / sizeof(float));
        other_.resize(data_.size());
#if CAIRN_HAS_GLOO
        if (c.name() == "mpi" && groups_.node().size() == p_) gloo_ = std::make_unique<gloo_peer>(c);
#endif
    }

    int run() {
        const bool is_root = c_.rank() == 0;
        std::string trouble = load_collectives(c_, perf::fingerprint(), s_.table);
        if (is_root && !trouble.empty()) std::fprintf(stderr, "warning: %s\n", trouble.c_str());
        check();
        measure_link();
        if (s_.calibrate) calibrate();
        if (is_root) heading();
        std::vector<double> errors;
        double worst = 1e300;
        nlohmann::json rows = nlohmann::json::array();
        for (index_t bytes = s_.min_bytes; bytes <= s_.max_bytes; bytes *= 4) {
            const all_reduce_algorithm chosen = automatic_all_reduce<float>(c_, bytes, true);
            std::vector<candidate> all = candidates(bytes, true);
            const std::vector<index_t> sizes = message_sizes(chosen, bytes);
            for (const index_t size : sizes) add_messages(all, size, chosen == all_reduce_algorithm::vendor);
            measure(c_, all, s_.seconds);
            const auto seconds = [&](const std::string& name) {
                for (const candidate& a : all)
                    if (a.name == name) return a.seconds();
                return 0.0;
            };
            const double own = seconds("auto"), mpi = seconds("native"), gloo = seconds("gloo");
            std::vector<link_point> points;
            for (const index_t size : sizes)
                points.push_back(
                    point_of(size, seconds(concat("exchange ", size)), seconds(concat("exchange and add ", size))));
            const double model = all_reduce_seconds(link_model(points), chosen, static_cast<double>(bytes), p_);
            const double peer = mpi > 0 && gloo > 0 ? std::min(mpi, gloo) : std::max(mpi, gloo);
            errors.push_back(std::abs(model / own - 1));
            if (peer > 0) worst = std::min(worst, peer / own);
            const double bus = static_cast<double>(bytes) / own * 2 * (p_ - 1) / p_ * 1e-9;
            nlohmann::json row{{"bytes", bytes},
                               {"chosen", name_of(chosen)},
                               {"bus_gb_s", bus},
                               {"model", model},
                               {"ratio", peer / own}};
            for (const candidate& a : all) {
                row["seconds"][a.name] = a.seconds();
                row["seconds_of_tenths"][a.name] = median(means_of_tenths(a.samples));
            }
            rows.push_back(row);
            if (!is_root) continue;
            std::printf("%8s", text_of_bytes(bytes).c_str());
            for (const std::string& name : names_) std::printf(" %11.1f", seconds(name) * 1e6);
            std::printf("  %-18s %6.2f %11.1f %+5.0f %% %6.2f\n", name_of(chosen), bus, model * 1e6,
                        100 * (model / own - 1), peer / own);
            std::fflush(stdout);
        }
        if (is_root) {
            std::printf("model: median error %.1f %%; smallest ratio %.2f\n", 100 * median(errors),
                        worst < 1e300 ? worst : 0.0);
            const nlohmann::json result{{"benchmark", "collectives"},
                                        {"communicator", c_.name()},
                                        {"ranks", p_},
                                        {"machine", perf::fingerprint()},
                                        {"rows", rows},
                                        {"model_median_error", median(errors)},
                                        {"smallest_ratio", worst < 1e300 ? worst : 0.0}};
            std::printf("%s\n", result.dump().c_str());
        }
        return 0;
    }

private:
    bool asked_for(const std::string& name) const {
        return s_.algorithms.empty() ||
               concat(',', s_.algorithms, ',').find(concat(',', name, ',')) != std::string::npos;
    }

    std::vector<candidate> candidates(index_t bytes, bool with_auto) {
        const std::span<float> data = std::span<float>(data_).first(static_cast<std::size_t>(bytes) / sizeof(float));
        std::vector<candidate> all;
        for (const auto& [algorithm, name] : all_reduce_names) {
            using enum all_reduce_algorithm;
            if (algorithm == automatic ? !with_auto : algorithm != vendor && !asked_for(name)) continue;
            if (algorithm == vendor && !vendor_of(c_)) continue;
            if (algorithm == hierarchical && groups_.node().size() == p_) continue;  // one node: the ring
            all.push_back({name,
                           [this, data, which = algorithm] { all_reduce(c_, data, {.algorithm = which}, &groups_); },
                           algorithm == automatic || algorithm == vendor});
        }
#if CAIRN_HAS_GLOO
        if (gloo_) all.push_back({"gloo", [this, data] { gloo_->all_reduce(data); }, with_auto});
#endif
        names_.clear();
        for (const candidate& a : all) names_.push_back(a.name);
        return all;
    }

    /// All candidates give the sum.
    void check() {
        const index_t bytes = std::min<index_t>(s_.max_bytes, 40'000);
        for (candidate& a : candidates(bytes, true)) {
            const auto data = std::span<float>(data_).first(static_cast<std::size_t>(bytes) / sizeof(float));
            std::ranges::fill(data, static_cast<float>(c_.rank() + 1));
            a.call();
            for (const float x : data)
                require(x == static_cast<float>(p_ * (p_ + 1) / 2), a.name, ": rank ", c_.rank(), " has ", x);
        }
        std::ranges::fill(data_, 0.0f);
    }

    /// Bytes of the messages that an algorithm sends.
    std::vector<index_t> message_sizes(all_reduce_algorithm algorithm, index_t bytes) const {
        using enum all_reduce_algorithm;
        std::vector<index_t> sizes;
        const index_t part = std::max<index_t>(sizeof(float), bytes / p_);
        if (algorithm == recursive_doubling) return {bytes};
        if (algorithm == tree) return {std::min(bytes, tree_segment)};
        if (algorithm == vendor) return {part, bytes};
        if (algorithm == halving_doubling)
            for (index_t q = 2; q <= p_; q *= 2) sizes.push_back(std::max<index_t>(sizeof(float), bytes / q));
        return sizes.empty() ? std::vector{part} : sizes;
    }

    /// Single messages, all ranks at once on a ring: to exchange, and to exchange and add. What came is sent on in the
    /// next call, as collectives do: data that another core has just written costs more than data that both have in
    /// their caches. `native`: by MPI's own call, which waits otherwise than ours; that shows where ranks share cores.
    void add_messages(std::vector<candidate>& all, index_t bytes, bool vendor = false) {
        const int left = (c_.rank() + p_ - 1) % p_, right = (c_.rank() + 1) % p_;
        const std::size_t n = static_cast<std::size_t>(bytes) / sizeof(float);
        struct buffers {
            std::span<float> out, in;
            segment_room<float> room;
        };
        const std::span<float> out = std::span<float>(data_).first(n), in = std::span<float>(other_).first(n);
        const auto b = std::make_shared<buffers>(buffers{out, in, segment_room<float>(in, static_cast<index_t>(n))});
        std::function<void()> exchange = [this, left, right, b] {
            sendrecv(c_, b->out, right, b->in, left, 1);
            std::swap(b->out, b->in);
        };
        std::function<void()> exchange_and_add = [this, left, right, b] {
            exchange_and_combine(c_, b->out, right, b->in, left, 1, reduction::sum, b->room);
            std::swap(b->out, b->in);
        };
        if constexpr (requires { c_.handle(); })
            if (vendor) {
                exchange = [this, left, right, b] {
                    const int count = static_cast<int>(b->out.size());
                    MPI_Sendrecv(b->out.data(), count, MPI_FLOAT, right, 1, b->in.data(), count, MPI_FLOAT, left, 1,
                                 c_.handle(), MPI_STATUS_IGNORE);
                    std::swap(b->out, b->in);
                };
                exchange_and_add = [this, exchange, b] {
                    exchange();
                    reduce_local(c_, b->out, std::span<const float>(b->in));
                };
            }
        all.push_back({concat("exchange ", bytes), exchange, true});
        all.push_back({concat("exchange and add ", bytes), exchange_and_add, true});
    }

    static link_point point_of(index_t bytes, double exchange, double exchange_and_add) {
        return {static_cast<double>(bytes), exchange, std::max(0.0, exchange_and_add - exchange)};
    }

    /// Times of messages of all sizes, for the table.
    void measure_link() {
        std::vector<link_point> points;
        for (index_t bytes = 64; bytes <= s_.max_bytes; bytes *= 2) {
            std::vector<candidate> both;
            add_messages(both, bytes);
            measure(c_, both, s_.seconds / 8);
            points.push_back(point_of(bytes, both[0].seconds(), both[1].seconds()));
        }
        link_ = link_model(points);
    }

    void calibrate() {
        collective_profile profile;
        profile.link = link_;
        for (index_t bytes = s_.min_bytes; bytes <= s_.max_bytes; bytes *= 4) {
            std::vector<candidate> all = candidates(bytes, false);
            measure(c_, all, s_.seconds);
            for (const candidate& a : all)
                if (a.name != "gloo") profile.all_reduce[bytes][all_reduce_named(a.name)] = a.seconds();
        }
        const collective_profiles made{{{c_.name(), p_}, profile}};
        if (c_.rank() == 0) {
            require(!s_.table.empty(), "--calibrate: no place for the table; set HOME or give --table");
            write_collectives(s_.table, perf::fingerprint(), made);
            std::printf("%s: %s, %d ranks\n", s_.table.c_str(), c_.name().c_str(), p_);
        }
        load_collectives(c_, perf::fingerprint(), s_.table);
    }

    void heading() {
        candidates(s_.min_bytes, true);
        const link_model& l = link_;
        const double large = static_cast<double>(s_.max_bytes);
        std::printf("%d ranks (%s), µs; α %.1f µs (64 B), β %.3f ns/B and γ %.3f ns/B (%s)\n", p_, c_.name().c_str(),
                    l.exchange(64) * 1e6, l.exchange(large) / large * 1e9, l.reduce(large) / large * 1e9,
                    text_of_bytes(s_.max_bytes).c_str());
        std::printf("%8s", "");
        for (const std::string& name : names_)
            std::printf(" %11.11s", name == "native" ? (c_.name() == "mpi" ? "MPI" : "native") : name.c_str());
        std::printf("  %-18s %6s %11s %7s %6s\n", "auto is", "GB/s", "model", "error", "ratio");
    }

    C& c_;
    const settings& s_;
    int p_;
    node_groups<C> groups_;
    std::vector<float> data_, other_;
    std::vector<std::string> names_;
    link_model link_;
#if CAIRN_HAS_GLOO
    std::unique_ptr<gloo_peer> gloo_;  // clang 14 recurses in the concept of a communicator for an optional
#endif
};

}  // namespace

int main(int argc, char** argv) {
    using cairn::index_t;
    settings s;
    CLI::App app{"Times all-reduces, and stores which is the fastest for which size."};
    app.add_flag("--calibrate", s.calibrate, "measure what automatic chooses from, and store it");
    app.add_flag("--quick", s.quick, "a tenth of the time, up to 4 MiB");
    app.add_option("--min-bytes", s.min_bytes, "smallest array")->check(CLI::Range(index_t{64}, index_t{1} << 40));
    app.add_option("--max-bytes", s.max_bytes, "largest array")->check(CLI::Range(index_t{64}, index_t{1} << 40));
    app.add_option("--seconds", s.seconds, "time for each size")->check(CLI::PositiveNumber);
    app.add_option("--algorithms", s.algorithms, "only these, separated by commas");
    app.add_option("--ranks", s.ranks, "threads as ranks, where mpirun did not start this")->check(CLI::Range(2, 256));
    app.add_option("--table", s.table, "where the table is");
    CLI11_PARSE(app, argc, argv);
    if (s.quick) s.seconds /= 10, s.max_bytes = std::min<index_t>(s.max_bytes, 4 << 20);
#if CAIRN_HAS_MPI
    if (started_by_mpi())
        return run_mpi(argc, argv, [&](mpi_communicator& world) {
            const int share = std::max(1, threads() / world.split_node().size());
            set_threads(share);
            return bench<mpi_communicator>(world, s).run();
        });
#endif
    try {
        run_ranks(s.ranks, [&](threads_communicator& c) { bench<threads_communicator>(c, s).run(); });
    } catch (const std::exception& e) {
        std::fprintf(stderr, "collectives: %s\n", e.what());
        return 1;
    }
    return 0;
}
