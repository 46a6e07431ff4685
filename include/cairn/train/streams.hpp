#pragma once
// Running texts (data.stream): each row of a batch continues that of the batch before, and layers remember what they
// saw (nn/stream_memory.hpp). Training and evaluation have a memory each. Both begin empty, training in every epoch;
// after a step that is skipped nothing is remembered, for it may not be finite.

#include <cairn/nn/relative_attention.hpp>
#include <cairn/train/step_hook.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Memories of this rank's rows; null where nothing is remembered.
template <Device D>
struct run_streams {
    std::unique_ptr<stream_memory<float, D>> train, test;
};

/// A layer's path in the model, and the width of its input.
struct remembering_layer {
    std::string name;
    index_t width;
};

/// In the order of the model, whose parameters have their names.
template <class T, Device D>
std::vector<remembering_layer> layers_that_remember(sequential<T, D>& model) {
    std::vector<remembering_layer> all;
    for (int i = 0; i < model.size(); ++i) {
        if (const auto* here = model[i].template as<relative_attention<T, D>>())
            all.push_back({here->name(), here->width()});
        for (const auto& child : model[i].children().chains)
            for (auto& inside : layers_that_remember(*child.layers)) all.push_back(std::move(inside));
    }
    return all;
}

/// Carries the memory from step to step.
template <Device D, class T>
class stream_reading final : public step_hook<D, T> {
public:
    explicit stream_reading(run_streams<D>& streams) : streams_(streams) {}

    void trial(pass_context& p) override {
        stream_memory<float, D>* const memory = p.training() ? streams_.train.get() : streams_.test.get();
        p.memory = memory;
        if (memory) p.random.first_sample = memory->rows().begin;
    }
    void begin(training_step<D, T>& now) override {
        if (now.batch.whole().host.at.batch == 0) streams_.train->clear();
        now.pass.memory = streams_.train.get();
        positions_ = now.batch.whole().there.x.extent(1);
    }
    bool decided(const training_step<D, T>&, const step_result& done) override {
        if (done.taken())
            streams_.train->advance(positions_);
        else
            streams_.train->clear();
        return false;
    }

private:
    run_streams<D>& streams_;
    index_t positions_ = 0;
};

}  // namespace cairn
