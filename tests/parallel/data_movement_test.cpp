// What ranks send of gradients, parameters, K-FAC's statistics and batch norms, counted on threads, is what the closed
// forms of perf/data_movement.hpp say, for every rank.

#include "catch.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/bf16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/parallel/data_axis.hpp>
#include <cairn/parallel/tensor/column_linear.hpp>
#include <cairn/parallel/tensor/row_linear.hpp>
#include <cairn/perf/data_movement.hpp>

#include <functional>
#include <memory>

namespace cairn {

namespace {

using counted_ranks = counting_communicator<threads_communicator>;
using counted_axis = data_axis<counted_ranks>;

std::string text_of(const traffic& all, const std::string& only) {
    const auto at = all.find(only);
    return at == all.end() ? "nothing" : concat(at->second.messages, " messages, ", at->second.bytes, " bytes");
}

/// A step of LeNet's gradients on each of p ranks: counted = told.
void check_step(int p, counted_axis::config how, const std::function<void(step_movement&, arena<float>&)>& describe) {
    run_ranks(p, [&](threads_communicator& threads) {
        counted_ranks c(threads);
        auto net = lenet<float>();
        arena<float> weights(net.parameters(), 1);
        counted_axis::config mine = how;
        mine.gradients.overlap = false;  // the counter is one thread's
        if (mine.zero_stage) mine.owners = owners_of(weights, p, false);
        counted_axis all(c, weights, mine);
        c.reset();
        all.gradients.begin(0);
        synchronise(all.gradients, all.agree, {.samples = 1}, 0);
        if (mine.zero_stage) all_gather_values(all.over, weights, mine.owners);
        step_movement s{.data = p, .all_reduce = how.gradients.all_reduce, .zero_stage = how.zero_stage};
        for (const bucket& b : all.gradients.reducer().buckets()) s.buckets.push_back(b.size());
        s.owners = mine.owners;
        describe(s, weights);
        const traffic told = sent_in_step(s, {.replica = c.rank()});
        for (const char* cause : {"gradients", "compressed gradients", "parameters"})
            require(text_of(c.by_cause(), cause) == text_of(told, cause), cause, " of rank ", c.rank(), " of ", p,
                    ": counted ", text_of(c.by_cause(), cause), ", formulas say ", text_of(told, cause));
        require((p == 1) == (told.empty() && c.counts().bytes == 0), "one rank sends nothing, others do");
    });
}

using some_method = std::unique_ptr<comm_hook<counted_ranks>>;

/// Messages of k, added or gathered.
template <class K>
void check_messages_of(int p, const K& k, message_exchange exchange) {
    const auto method = [&](const bucket_layout&, index_t n) -> some_method {
        return std::make_unique<message_hook<counted_ranks, K>>(k, n, p);
    };
    const index_t bytes = exchange == message_exchange::added ? 1 << 20 : 30'000;  // one bucket, which goes by ring
    check_step(p, {.gradients = {.bucket_bytes = bytes, .method = method}}, [&](step_movement& s, arena<float>&) {
        s.message_bytes = [&k](index_t n) { return k.max_bytes(n); };
        s.exchange = exchange;
    });
}

}  // namespace

TEST_CASE("data movement: gradients by every all-reduce and ZeRO stage", "[parallel][movement]") {
    using enum all_reduce_algorithm;
    const auto as_it_is = [](step_movement&, arena<float>&) {};
    for (int p = 1; p <= 8; ++p)
        for (const index_t bytes : {30'000, 1 << 20}) {
            for (const auto algorithm : {ring, recursive_doubling, halving_doubling, tree})
                check_step(p, {.gradients = {.bucket_bytes = bytes, .all_reduce = algorithm}}, as_it_is);
            for (const int stage : {1, 2})
                check_step(p, {.gradients = {.bucket_bytes = bytes, .all_reduce = ring}, .zero_stage = stage},
                           as_it_is);
        }
}

TEST_CASE("data movement: compressed gradients", "[parallel][movement]") {
    for (int p = 1; p <= 8; ++p) {
        check_messages_of(p, bf16<cpu>(), message_exchange::added);
        check_messages_of(p, qsgd<cpu>({.levels = 7}), message_exchange::gathered);
        check_messages_of(p, natural<cpu>(), message_exchange::gathered);
        // PowerSGD's two sums of less than the bucket, as buckets of floats.
        const auto powersgd_of = [](const bucket_layout& layout, index_t n) {
            return powersgd<cpu>({.rank = 2}, layout, n);
        };
        const auto method = [&](const bucket_layout& layout, index_t n) -> some_method {
            return std::make_unique<reducing_hook<counted_ranks, powersgd<cpu>>>(powersgd_of(layout, n));
        };
        check_step(p, {.gradients = {.method = method}}, [&](step_movement& s, arena<float>& weights) {
            bucket_layout layout;
            for (const auto& [name, of] : weights.parameters())
                layout.push_back({name, of->grad.data() - weights.grads().data(), of->shape});
            const low_rank_plan plan = plan_low_rank(layout, s.buckets.front(), 2);
            s.buckets = {plan.p_size + plan.dense_size, plan.q_size};
            s.all_reduce = all_reduce_algorithm::recursive_doubling;  // they are short
            s.message_bytes = [](index_t n) { return 4 * n; };
            s.exchange = message_exchange::added, s.message_element_bytes = 4;
        });
    }
}

TEST_CASE("data movement: compressed in two phases", "[parallel][movement]") {
    for (int p = 1; p <= 8; ++p)
        run_ranks(p, [&](threads_communicator& threads) {
            counted_ranks c(threads);
            for (const index_t n : {1, 1000, 44'426}) {
                c.reset();
                std::vector<float> g(static_cast<std::size_t>(n), 1.0f);
                two_phase_hook<counted_ranks, sign<cpu>> method(sign<cpu>(), n, p, c.rank());
                const auto why = because(c, "compressed gradients");
                method.reduce(c, g, {.rank = c.rank()});
                const traffic told = sent_in_step({.data = p,
                                                   .buckets = {n},
                                                   .message_bytes = [](index_t m) { return sign<cpu>().max_bytes(m); },
                                                   .exchange = message_exchange::two_phases},
                                                  {.replica = c.rank()});
                require(c.by_cause() == told, "rank ", c.rank(), " of ", p, ": counted ",
                        text_of(c.by_cause(), "compressed gradients"), ", formulas say ",
                        text_of(told, "compressed gradients"));
            }
        });
}

TEST_CASE("data movement: statistics of batch norm", "[parallel][movement]") {
    for (int p = 1; p <= 8; ++p)
        run_ranks(p, [&](threads_communicator& threads) {
            counted_ranks c(threads);
            group_over<counted_ranks> group(c.split(0, c.rank()));
            sequential<float> net;
            net.add("bn", batch_norm<float>({.channels = 5}));
            const arena<float> weights(net.parameters(), 1);
            saved_tensors<float> saved;
            pass_context how;
            how.group = &group;
            net.forward(tensor<float>::zeros({4, 5}), saved, how);
            net.backward(tensor<float>::zeros({4, 5}), saved, how);
            require(c.by_cause() == sent_in_step({.data = p, .batch_norms = {5}}), "rank ", c.rank(), " of ", p, ": ",
                    text_of(c.by_cause(), "batch-norm statistics"));
        });
}

TEST_CASE("data movement: stages, layers and axes of causes", "[parallel][movement]") {
    // Four stages on two ranks, back and forth: three boundaries of 800 bytes cross, 4 micro-batches.
    step_movement s{.micro_batches = 4};
    s.boundaries = {{0, 1, 800}, {1, 0, 800}, {0, 1, 800}, {1, 1, 800}};
    s.layers.tensor = {72, 72'000};
    const traffic first = sent_in_step(s), second = sent_in_step(s, {.pipeline = 1});
    CHECK(first.at("activations") == sent_messages{8, 1600});
    CHECK(first.at("gradients of activations") == sent_messages{4, 800});
    CHECK(second.at("activations") == sent_messages{4, 800});
    CHECK(second.at("gradients of activations") == sent_messages{8, 1600});
    const auto axes = bytes_by_axis(first);
    CHECK(axes.at("pipeline") == 2400);
    CHECK(axes.at("tensor") == 72'000);
    CHECK(axis_of("kfac's factors") == "data");
    CHECK(axis_of("agreement") == "all");
}

TEST_CASE("data movement: K-FAC on a grid of ranks", "[parallel][movement]") {
    // 4 ranks, half of them gradient workers of a layer: 2 rows x 2 columns. Two equal layers, one a column.
    kfac_movement k{.place = kfac_assignment(4, {{10, 10}, {10, 10}}, {.grad_worker_fraction = 0.5})};
    k.layers.assign(2, {.factor_a = 60, .factor_g = 40, .made_a = 70, .made_g = 50, .direction = 300});
    const traffic maker = sent_in_step({.data = 4, .kfac = k}, {.replica = 0}),
                  other = sent_in_step({.data = 4, .kfac = k}, {.replica = 2});
    CHECK(maker.at("kfac's factors") == sent_messages{6, 2 * 3 * 50 * 4});  // 2(p-1)/p of 200 numbers
    CHECK(maker.at("kfac's decompositions") == sent_messages{1, 120 * 4});  // both of its layer, to its column
    CHECK(other.at("kfac's decompositions") == sent_messages{1, 0});
    CHECK(maker.at("kfac's directions") == sent_messages{1, 300 * 4});
    k.statistics = kfac_statistics::local;
    CHECK_FALSE(sent_in_step({.data = 4, .kfac = k}).contains("kfac's factors"));
    k.place = kfac_assignment(4, {{10, 10}, {10, 10}}, {.grad_worker_fraction = 0.25});
    CHECK_FALSE(sent_in_step({.data = 4, .kfac = k}).contains("kfac's decompositions"));
}

TEST_CASE("data movement: a transformer's block has four sums of its activations", "[parallel][movement]") {
    run_ranks(4, [&](threads_communicator& c) {
        channel<threads_communicator> over(c);
        tensor_axis<threads_communicator> axis(over, {.algorithm = all_reduce_algorithm::ring, .overlap = false});
        const auto sent = [](const auto& layer, const shape& in) {
            const layer_cost cost = layer.cost(in);
            shared_sends all = cost.forward.sends;
            all += cost.backward_input.sends, all += cost.backward_weight.sends;
            return all.tensor;
        };
        using column = column_linear<threads_communicator>;
        using row = row_linear<threads_communicator>;
        const index_t n = 2 * 8 * 16;  // numbers of x (2, 8, 16)
        for (const auto sequences : {sequence_layout::whole, sequence_layout::parts}) {
            const bool cut = sequences == sequence_layout::parts;
            sent_messages block;
            for (int half = 0; half < 2; ++half) {  // attention, and the two linear layers
                block +=
                    sent(column(axis, {.whole = {.in = 16, .out = 32}, .sequences = sequences}), {2, cut ? 2 : 8, 16});
                block += sent(row(axis, {.whole = {.in = 32, .out = 16}, .sequences = sequences}), {2, 8, 8});
            }
            // 2(t-1)/t each; in parts as much, and x of each half once more for the gradient of its weights
            require(block.bytes == (cut ? 5 : 4) * 2 * 3 * n / 4 * 4, "sent ", block.bytes);
        }
    });
}

}  // namespace cairn
