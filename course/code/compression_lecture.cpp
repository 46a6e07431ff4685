// Code of course/lectures/03-compression.md: contracts held against what is lost, bytes counted, and the break-even.

#include <cairn/comm/collectives/compressed.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/timeline.hpp>
#include <cairn/compress/topk.hpp>

#include <cstdio>
#include <vector>

using namespace cairn;

namespace {

// --8<-- [start:lost]
/// ‖x − C(x)‖² / ‖x‖²: the share of the gradient that one message loses.
template <Compressor K>
double lost(K& compressor, const std::vector<float>& x) {
    message<> out;
    std::vector<float> decoded(x.size());
    compressor.encode(x, out, {.seed = 1});
    compressor.decode(std::as_const(out).bytes(), decoded, {.seed = 1});
    double difference = 0, whole = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        difference += std::pow(double(x[i]) - double(decoded[i]), 2);
        whole += std::pow(double(x[i]), 2);
    }
    return difference / whole;
}
// --8<-- [end:lost]

std::vector<float> normal_values(std::size_t n, int rank) {
    const random_stream random{1, stream_of("lecture"), static_cast<std::uint32_t>(rank)};
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.normal(i));
    return x;
}

// --8<-- [start:sent]
/// Bytes that rank 0 of p sends for one all-reduce of n values: dense, or with the messages of K.
long bytes_dense(int p, std::size_t n) {
    long bytes = 0;
    run_ranks(p, [&](threads_communicator& world) {
        counting_communicator c(world.split(0, world.rank()));
        std::vector<float> gradient = normal_values(n, c.rank());
        ring_all_reduce(c, std::span<float>(gradient));
        if (c.rank() == 0) bytes = c.counts().bytes;
    });
    return bytes;
}
template <Compressor K>
long bytes_gathered(int p, std::size_t n, K prototype) {
    long bytes = 0;
    run_ranks(p, [&](threads_communicator& world) {
        counting_communicator c(world.split(0, world.rank()));
        std::vector<float> gradient = normal_values(n, c.rank());
        K compressor = prototype;
        mailbox<> mail;
        gathered_all_reduce(c, compressor, gradient, mail, {.seed = 1, .rank = c.rank()});
        if (c.rank() == 0) bytes = c.counts().bytes;
    });
    return bytes;
}
// --8<-- [end:sent]

// --8<-- [start:pays]
/// Whether one bucket is worth compressing: nothing of its exchange is hidden behind backward, messages are `ratio`
/// times smaller.
bool pays(double exchange, double ratio, double encode, double decode) {
    const double computed = 0.4;  // seconds until backward has ended and the bucket is complete
    const bucket_times dense[] = {{.ready = computed, .communication = exchange}};
    const bucket_times small[] = {{computed, encode, exchange / ratio, decode}};
    return predict_step(small, computed).seconds < predict_step(dense, computed).seconds;
}
// --8<-- [end:pays]

}  // namespace

int main() {
    // --8<-- [start:contracts]
    const std::vector<float> x = normal_values(100'000, 0);
    const auto n = static_cast<cairn::index_t>(x.size());
    topk one_percent({.ratio = 0.01});
    cairn::sign one_bit;
    std::printf("topk 1 %%  loses %.3f, promised at most %.3f\n", lost(one_percent, x),
                1 - one_percent.contract(n).contraction);
    std::printf("sign      loses %.3f, promised at most %.3f\n", lost(one_bit, x), 1 - one_bit.contract(n).contraction);
    // --8<-- [end:contracts]
    const double of_topk = lost(one_percent, x), of_sign = lost(one_bit, x);
    require(of_topk > 0.90 && of_topk < 0.93, "topk loses ", of_topk);
    require(of_sign > 0.35 && of_sign < 0.38, "sign loses ", of_sign);  // 1 − 2/π = 0.363

    for (const int p : {2, 4, 8}) {
        const long dense = bytes_dense(p, 64'000), gathered = bytes_gathered(p, 64'000, cairn::sign{});
        std::printf("%d ranks: %ld bytes dense, %ld with gathered signs\n", p, dense, gathered);
        require(dense == 2 * (p - 1) * 256'000 / p, "dense bytes");
        // 63 scales and 8,000 bytes of signs from every other rank; the length is known to all.
        require(gathered == (p - 1) * (63 * 4 + 8'000), "gathered bytes: ", gathered);
    }
    require(pays(0.5, 32, 0.02, 0.02) && !pays(0.03, 32, 0.02, 0.02), "the break-even rule");
}
