// Code of course/compression.md: a compressor of one's own sums the gradients of four ranks.

#include "cyclic.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/parallel/comm_hook.hpp>

#include <cstdio>
#include <vector>

int main() {
    using namespace cairn;
    // --8<-- [start:sum]
    run_ranks(4, [](threads_communicator& c) {
        using compressor = error_feedback<cyclic<>>;
        message_hook<threads_communicator, compressor> method(compressor(cyclic<>(10)), 1000, c.size());
        std::vector<double> sent(1000);
        for (int step = 0; step < 20; ++step) {
            std::vector<float> gradient(1000, static_cast<float>(c.rank() + 1));
            method.reduce(c, gradient, {.rank = c.rank(), .step = step});  // gradient is now the sum over ranks
            for (std::size_t i = 0; i < sent.size(); ++i) sent[i] += double(gradient[i]);
        }
        // In 20 steps of 1 + 2 + 3 + 4 everything was sent but what waits for its turn: from 0 to 9 steps.
        require(sent.back() == 200 && sent.front() == 110, "sent ", sent.front(), " to ", sent.back());
        if (c.rank() == 0) std::printf("of 200: %g of the first value, %g of the last\n", sent.front(), sent.back());
    });
    // --8<-- [end:sum]
}
