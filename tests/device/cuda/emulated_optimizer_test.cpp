// Optimizers on the emulated GPU.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/optimizer_laws.hpp"

namespace cairn {

namespace {

/// A layer-wise optimizer of somebody who knows nothing of device_norm: θ ← θ − η g / ‖all gradients‖.
struct normalised {
    static constexpr const char* name = "normalised";
    struct config {};
    template <class T, Device D>
    struct state {
        static constexpr std::array<const char*, 0> names{};
    };
    template <class T, Device D>
    void update(tensor<T, D>& theta, tensor<T, D>& g, state<T, D>&, const update_context& at) const {
        for_each(functors::add_scaled<T>{static_cast<T>(-at.lr / at.gradient_norm)}, theta, g);
    }
    void check() const {}
};

}  // namespace

TEST_CASE("GPU optimizers, emulated: plain loops, layout, resumption, clipping", "[cuda]") {
    check_each(optimizer_laws::all<emulated_gpu>());
}

TEST_CASE("GPU optimizers, emulated: the host waits once a step, for one number, when all is launched", "[cuda]") {
    using gpu = emulated_gpu;
    optimizer_laws::with_each([](const auto& o) {
        CAPTURE(o.name);
        small_model<float, gpu> model;
        bound_optimizer opt(o, *model.memory);
        for (int t = 1; t <= 2; ++t) {
            model.set_gradients(t);
            const index_t waits = gpu::waits, launches = gpu::launches;
            opt.step(0.1);
            CHECK(gpu::waits == waits);
            CHECK(gpu::launches_at_last_finish == gpu::launches);
            CHECK(gpu::launches >= launches + 2 + static_cast<index_t>(opt.launches()) - 1);  // one parameter is empty
        }
    });
}

TEST_CASE("GPU optimizers, emulated: a rule that asks for the norm on the host has it there", "[cuda]") {
    small_model<float, emulated_gpu> model;
    bound_optimizer opt(normalised{}, *model.memory);
    model.set_gradients(1);
    const auto before = model.memory->values().on_host(), g = model.memory->grads().on_host();
    const auto step = static_cast<float>(-0.5 / opt.step(0.5));
    const auto after = model.memory->values().on_host();
    for (index_t i = 0; i < g.size(); i += 50) CHECK(std::abs(after[i] - (before[i] + step * g[i])) < 1e-6f);
    auto nan = g.clone();
    nan[3] = std::numeric_limits<float>::quiet_NaN();
    model.set(model.memory->grads(), nan);
    CHECK_THROWS_WITH(opt.step(0.5), Catch::Contains("nothing was updated"));
    CHECK(same_bits(model.memory->values().on_host(), after));
}

}  // namespace cairn
