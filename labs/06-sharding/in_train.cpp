// Your Adam as optimizer.kind = "student" of the program train. README.md has the commands.

#include <cairn/train/optimizers.hpp>

#include "adam.hpp"

namespace {

/// What the library asks of an optimizer that sees one parameter at a time (cairn/optim/optimizer.hpp). The library
/// reduces the gradients, cuts m and v over the ranks (parallel.zero_stage), and saves them.
struct student_adam {
    static constexpr const char* name = "student";
    using config = student::adam_settings;
    config c;

    /// What is kept for each parameter: it has the parameter's shape, and is zero before the first step.
    template <class T, cairn::Device D>
    struct state {
        static constexpr std::array<const char*, 2> names{"m", "v"};
        cairn::tensor<T, D> m, v;
    };

    void update(cairn::tensor<float>& theta, cairn::tensor<float>& gradient, state<float, cairn::cpu>& s,
                const cairn::update_context& at) const {
        config now = c;
        now.lr = at.lr;  // the schedule's
        student::adam(now, at.number, gradient.span(), theta.span(), s.m.span(), s.v.span());
    }

    void check() const {}
};

struct entry {
    static constexpr const char* name = "student";
    static student_adam make(cairn::configuration& settings) {
        student_adam o;
        o.c.beta1 = settings.get("optimizer.beta1", o.c.beta1, cairn::from_below(0, 1));
        o.c.beta2 = settings.get("optimizer.beta2", o.c.beta2, cairn::from_below(0, 1));
        o.c.epsilon = settings.get("optimizer.epsilon", o.c.epsilon, cairn::above(0));
        return o;
    }
};

const cairn::register_optimizer<entry, CAIRN_TARGETS> is_known;

}  // namespace
