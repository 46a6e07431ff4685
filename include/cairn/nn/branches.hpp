#pragma once
// Several chains that read the same x (nn/children.hpp):
//   residual         y = body(x) + shortcut(x)        He et al. 2016; an empty shortcut is the identity
//   add_branches     y = b0(x) + b1(x) + …
//   concat_branches  y = (b0(x) | b1(x) | …)          joined on channels: Inception, pyramid pooling
//   concat_skip      y = (x | inner(x))               U-Net's long skip (Ronneberger et al. 2015): `inner` goes down a
//                                                     level and comes back up to the size of x; nested, they are the U
// A body that ends in a ResidualLayer (batch_norm) adds the skip in that layer's pass, activation included:
//   y = activation(batch_norm(… x …) + shortcut(x))
// For other bodies the activation goes behind the block, where it works in place. A sum overwrites an operand without
// other owners.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/sequential.hpp>

#include <tuple>

namespace cairn {

/// Whether the last layer of a residual block's body adds the skip.
template <class T, Device D>
bool adds_skip(const sequential<T, D>& body) {
    return body.size() > 0 && static_cast<bool>(body[body.size() - 1].residual());
}

/// body(x) + skip, added by the body's last layer if it is a ResidualLayer.
template <class T, Device D>
tensor<T, D> forward_with_skip(sequential<T, D>& body, tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved,
                               const pass_context& p) {
    if (!adds_skip(body)) return add(body.forward(std::move(x), saved, p), std::move(skip));
    const int last = body.size() - 1;
    tensor<T, D> y = body.forward_until(last, std::move(x), saved, p);
    const shape in = y.shape();
    const auto add_skip = [&](auto& layer) {
        return layer.residual().forward(std::move(y), std::move(skip), saved.child(last, body.name(last)),
                                        body.context_of(last, p));
    };
    return body.visit(last, "forward", add_skip, &in);
}

/// From the gradient of that sum: {dx, dskip}. Both halves of the body's backward, or the first one.
template <class T, Device D>
std::pair<tensor<T, D>, tensor<T, D>> backward_with_skip(sequential<T, D>& body, tensor<T, D> dy,
                                                         saved_tensors<T, D>& saved, const pass_context& p,
                                                         bool both_halves) {
    int plain = body.size();  // layers that run as in any chain
    std::pair<tensor<T, D>, tensor<T, D>> gradients;
    if (adds_skip(body)) {
        --plain;
        gradients = body.visit(plain, both_halves ? "backward" : "backward_input", [&](auto& layer) {
            const pass_context its = body.context_of(plain, p);
            saved_tensors<T, D>& its_saved = saved.child(plain);
            auto of_sum = layer.residual().backward(std::move(dy), its_saved, its);
            if (both_halves) layer.backward_weight(its_saved, its), its_saved.clear();
            return of_sum;
        });
    } else {
        gradients.second = dy.share();
        gradients.first = std::move(dy);
    }
    tensor<T, D>& dx = gradients.first;
    while (plain-- > 0)
        dx = both_halves ? body.backward_of(plain, std::move(dx), saved, p)
                         : body.backward_input_of(plain, std::move(dx), saved, p);
    return gradients;
}

/// Common part of the four.
template <class T = float, Device D = cpu>
class branches {
public:
    using value_type = T;
    using device = D;

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = x.shape();
        output_shape(in);                   // throws before anything runs
        std::vector<tensor<T, D>> results;  // to be joined, in their order; or the sum
        for (int i = size(); i-- > 0;) {
            const pass_context its = p.child(name(i));
            saved_tensors<T, D>& its_saved = saved.child(i, name(i));
            tensor<T, D> its_x = i > 0 ? x.share() : std::move(x);
            if (i == 0 && how_ == combination::residual)
                return forward_with_skip(chain(0), std::move(its_x), std::move(results[0]), its_saved, its);
            if (joins() && p.training())  // the width, to cut the gradient again
                saved.put(i, tensor<T, D>::view(nullptr, chain(i).output_shape(in)));
            tensor<T, D> y = chain(i).forward(std::move(its_x), its_saved, its);
            if (joins() || results.empty())
                results.insert(results.begin(), std::move(y));
            else
                results[0] = add(std::move(y), std::move(results[0]));
        }
        return joins() ? join_channels(results) : std::move(results[0]);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, false);
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = 0; i < size(); ++i) chain(i).backward_weight(saved.child(i), p.child(name(i)));
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, true);
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        for (int i = 0; i < size(); ++i) append_prefixed(all, name(i), chain(i).parameters());
        return all;
    }

    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all;
        for (int i = 0; i < size(); ++i) append_prefixed(all, name(i), chain(i).buffers());
        return all;
    }

    layer_children<T, D> children() {
        layer_children<T, D> c{how_};
        for (int i = 0; i < size(); ++i) c.chains.push_back({name(i), &chain(i)});
        return c;
    }

    shape output_shape(const shape& in) const {
        const shape first = chain(0).output_shape(in);
        shape out = first;
        for (int i = 1; i < size(); ++i) {
            const shape other = chain(i).output_shape(in);
            const bool fits =
                joins() ? other.rank() == first.rank() && other.with(-1, 0) == first.with(-1, 0) : other == first;
            if (!fits)
                fail(describe(), ": from ", in, " branch 0 makes ", first, ", branch ", i, ' ', other, "; ",
                     joins() ? "all axes but the last" : "they", " must agree");
            if (joins()) out = out.with(-1, out.back() + other.back());
        }
        return out;
    }

    layer_cost cost(const shape& in) const {
        const bool fused = how_ == combination::residual && adds_skip(chain(0));
        const double bytes = sizeof(T), additions = size() - 1, x = additions * double(in.size()),
                     y = additions * double(output_shape(in).size());
        layer_cost total;
        for (int i = 0; i < size(); ++i) {
            const layer_cost c = chain(i).cost(in);
            total.add_work(c);
            total.saved_bytes += c.saved_bytes;
            total.saves_input = total.saves_input || c.saves_input;
            if (i == 0 && fused) {
                total.saves_output = c.saves_output;
                if (c.masks_gradient) total.backward_input += {0, bytes * y};  // else dskip is dy
            } else if (c.saves_output) {  // a block of its own, which sum or join do not keep
                total.saved_bytes += block_bytes<T>(chain(i).output_shape(in));
            }
        }
        total.backward_input += {x, 3 * bytes * x};
        if (!joins()) total.forward += {y, (fused ? 1 : 3) * bytes * y};
        for (phase_cost* phase : {&total.forward, &total.backward_input})
            if (joins()) *phase += {0, 2 * bytes * double(output_shape(in).size())};
        return total;
    }

    std::string describe() const {
        switch (how_) {
            case combination::residual:
                return concat("residual of ", chain(0).size(), chain(1).size() ? " with projection" : "");
            case combination::sum:
                return concat("sum of ", size());
            default:
                return name(0) == "" ? concat("skip around ", chain(1).size()) : concat(size(), " branches");
        }
    }

    int size() const { return static_cast<int>(chains_.size()); }

protected:
    void add_chain(std::string name, sequential<T, D> chain) {
        names_.push_back(std::move(name));
        chains_.push_back(std::move(chain));
    }
    branches(combination how, std::vector<sequential<T, D>> chains) : how_(how), chains_(std::move(chains)) {
        require(size() > 0, "branches: none given");
        for (int i = 0; i < size(); ++i) names_.push_back(concat("branch", i));
    }
    branches(combination how) : how_(how) {}

private:
    bool joins() const { return how_ == combination::join; }
    const std::string& name(int i) const { return names_[static_cast<std::size_t>(i)]; }
    sequential<T, D>& chain(int i) { return chains_[static_cast<std::size_t>(i)]; }
    const sequential<T, D>& chain(int i) const { return chains_[static_cast<std::size_t>(i)]; }

    // Both halves of backward, or the first one.
    tensor<T, D> backward_through(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p,
                                  bool both_halves) {
        std::vector<tensor<T, D>> parts;  // of dy, of joined chains
        for (index_t i = 0, at = 0; joins() && i < size(); ++i) {
            const index_t width = saved.take(static_cast<int>(i)).shape().back();
            parts.push_back(cut_channels(dy, std::exchange(at, at + width), width));
        }
        if (joins()) dy.reset();
        tensor<T, D> dx;
        for (int i = 0; i < size(); ++i) {
            const pass_context its = p.child(name(i));
            saved_tensors<T, D>& its_saved = saved.child(i);
            if (i == 0 && how_ == combination::residual) {
                std::tie(dx, dy) = backward_with_skip(chain(0), std::move(dy), its_saved, its, both_halves);
                continue;
            }
            tensor<T, D> of = joins()          ? std::move(parts[static_cast<std::size_t>(i)])
                              : i + 1 < size() ? dy.share()
                                               : std::move(dy);
            of = both_halves ? chain(i).backward(std::move(of), its_saved, its)
                             : chain(i).backward_input(std::move(of), its_saved, its);
            dx = i == 0 ? std::move(of) : add(std::move(dx), std::move(of));
        }
        return dx;
    }

    combination how_;
    std::vector<std::string> names_;  // see children()
    std::vector<sequential<T, D>> chains_;
};

CAIRN_COMPILED_CLASS(branches)

/// Two chains, added.
template <class T = float, Device D = cpu>
struct residual : branches<T, D> {
    explicit residual(sequential<T, D> body, sequential<T, D> shortcut = {}) : branches<T, D>(combination::residual) {
        require(body.size() > 0, "residual: the body has no layers");
        this->add_chain("", std::move(body));
        this->add_chain("shortcut", std::move(shortcut));
    }
};

/// Chains whose results are added.
template <class T = float, Device D = cpu>
struct add_branches : branches<T, D> {
    explicit add_branches(std::vector<sequential<T, D>> chains) : branches<T, D>(combination::sum, std::move(chains)) {}
};

/// Chains side by side, results joined on the last axis.
template <class T = float, Device D = cpu>
struct concat_branches : branches<T, D> {
    explicit concat_branches(std::vector<sequential<T, D>> chains)
        : branches<T, D>(combination::join, std::move(chains)) {}
};

/// x and what the inner chain makes of it, side by side.
template <class T = float, Device D = cpu>
struct concat_skip : branches<T, D> {
    explicit concat_skip(sequential<T, D> inner) : branches<T, D>(combination::join) {
        this->add_chain("", {});
        this->add_chain("", std::move(inner));
    }
};

}  // namespace cairn
