// Code of course/transformer-xl.md: a text in segments, read with and without a memory, and the relative shift.

#include <cairn/core/arena.hpp>
#include <cairn/models/transformer_xl.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>

#include <cstdio>

using namespace cairn;

namespace {

// --8<-- [start:shift]
// products[i][c] = qv_i · r_c: for each of L positions a row of all K = M + L distances, place c for K − 1 − c.
// Key j is M + i − j before row i: its product lies at c = j + L − 1 − i, so row i moves by L − 1 − i places.
void add_relative(index_t memory, index_t length, const tensor<float>& products, tensor<float>& scores) {
    const index_t keys = memory + length;
    for (index_t i = 0; i < length; ++i)
        for (index_t j = 0; j <= memory + i; ++j) scores[i * keys + j] += products[i * keys + j + length - 1 - i];
}
// --8<-- [end:shift]

// --8<-- [start:text]
// 4 rows of text whose every letter is that of 12 places before: a segment of 8 alone cannot know it.
tensor<float> letters(index_t rows, index_t length) {
    tensor<float> text({rows, length});
    for (index_t n = 0; n < rows; ++n)
        for (index_t i = 0; i < length; ++i)
            text[n * length + i] =
                i < 12 ? static_cast<float>(random_stream{7, 0, 0}.below(8, static_cast<std::uint64_t>(n * 12 + i)))
                       : text[n * length + i - 12];
    return text;
}
// --8<-- [end:text]

/// Columns [from, from + n) of a text.
tensor<float> columns(const tensor<float>& text, index_t from, index_t n) {
    tensor<float> part({text.extent(0), n});
    for (index_t i = 0; i < part.size(); ++i) part[i] = text[i / n * text.extent(1) + from + i % n];
    return part;
}

// --8<-- [start:train]
// The mean loss of the last epoch, with a memory of so many positions.
double train(index_t remembered) {
    constexpr index_t rows = 4, segment = 8, segments = 12;
    const tensor<float> text = letters(rows, segment * segments + 1);
    auto net = transformer_xl({.vocab_size = 8, .embedding_dim = 32, .heads = 2, .blocks = 2});
    arena<float> weights(net.parameters(), 1);
    bound_optimizer optimizer(adam{}, weights);
    stream_memory<float> memory(remembered, {0, rows});
    double loss_of_epoch = 0;
    for (std::uint32_t epoch = 0; epoch < 30; ++epoch) {
        memory.clear();  // an epoch begins with nothing
        loss_of_epoch = 0;
        for (index_t s = 0; s < segments; ++s) {
            pass_context p{.input_gradient = false};
            p.memory = &memory;
            saved_tensors<float> saved;
            tensor<std::int32_t> next({rows, segment});
            const tensor<float> behind = columns(text, s * segment + 1, segment);
            for (index_t i = 0; i < next.size(); ++i) next[i] = static_cast<std::int32_t>(behind[i]);
            auto [loss, dy] = cross_entropy{}(net.forward(columns(text, s * segment, segment), saved, p), next);
            weights.zero_grad();
            net.backward(std::move(dy), saved, p);
            optimizer.step(3e-3);
            memory.advance(segment);  // what the layers saw is now what they remember
            loss_of_epoch += loss / segments;
        }
    }
    return loss_of_epoch;
}
// --8<-- [end:train]

}  // namespace

int main() {
    tensor<float> products({2, 5}), scores({2, 5});
    for (index_t i = 0; i < 10; ++i) products[i] = static_cast<float>(i), scores[i] = 0;
    add_relative(3, 2, products, scores);
    const bool shifted = scores[0] == 1 && scores[3] == 4 && scores[4] == 0 && scores[5] == 5 && scores[9] == 9;
    const double without = train(0), with = train(16);
    std::printf("loss without a memory %.3f, with one of 16 positions %.3f\n", without, with);
    return shifted && with < 0.5 * without ? 0 : 1;
}
