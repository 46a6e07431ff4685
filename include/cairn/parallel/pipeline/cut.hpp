#pragma once
// Cuts a model into the stages of a pipeline. A unit is what runs in one piece: a layer, or several branches. A
// container that tells its children (nn/children.hpp) is opened: a chain inside a chain, and of two chains side by side
// (a long skip, a residual block) one, beside which the other's result travels (skip_part.hpp). The units of a model
// are those of its chains, one after another, and between any two of them it may be cut.
//   units = units_of(model, {1, 32, 32, 3});  cuts = balance(…);  stages = cut(model, {1, 32, 32, 3}, cuts);
// Layers keep their names, so parameters keep their paths: a stage starts with the values, and draws the masks, that it
// would in the whole model (core/parameter.hpp).

#include <cairn/nn/sequential.hpp>
#include <cairn/parallel/pipeline/skip_part.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// A unit of a model, for inputs of one shape.
struct model_unit {
    std::string path;
    shape in;  // of what crosses a cut in front of it
    layer_cost cost;
    index_t saved_bytes = 0;  // that a micro-batch leaves for backward, its input included where it is saved
};

namespace detail {

/// The chain inside a layer that a cut may open, and the tensor that then travels with the activation.
template <class T, Device D>
struct opened_layer {
    typename layer_children<T, D>::child inside{"", nullptr}, beside{"", nullptr};  // null: there is none
    combination how = combination::none;
    bool beside_leads = false;  // of joined channels

    explicit operator bool() const { return inside.layers != nullptr; }
    bool skips() const { return beside.layers != nullptr; }
    /// What travels beside the chain, for an input of shape s.
    shape skip(const shape& s) const { return beside.layers->output_shape(s); }
    std::string path(const std::string& of_layer) const {
        return inside.name.empty() ? of_layer : of_layer + '/' + inside.name;
    }
};

/// The only chain of a layer; of two the one with layers, the first where both have some.
template <class T, Device D>
opened_layer<T, D> opened(const any_layer<T, D>& layer) {
    const layer_children<T, D> c = layer.children();
    opened_layer<T, D> o{.how = c.how};
    if (c.size() == 1 && c.how == combination::chain) o.inside = c[0];
    if (c.size() == 2) {
        o.beside_leads = c[0].layers->size() == 0;
        o.inside = c[o.beside_leads ? 1 : 0];
        o.beside = c[o.beside_leads ? 0 : 1];
    }
    return o && o.inside.layers->size() > 0 ? o : opened_layer<T, D>{};
}

template <class T>
index_t saved_with_ends(const layer_cost& c, const shape& in, const shape& out) {
    return c.saved_bytes + (c.saves_input ? block_bytes<T>(in) : 0) + (c.saves_output ? block_bytes<T>(out) : 0);
}

template <class T, Device D>
int count_units(sequential<T, D>& chain) {
    int n = 0;
    for (int i = 0; i < chain.size(); ++i) {
        const opened_layer<T, D> o = opened(chain[i]);
        n += o ? count_units(*o.inside.layers) : 1;
    }
    return n;
}

template <class T, Device D>
void collect_units(sequential<T, D>& chain, shape s, const std::string& prefix, std::vector<model_unit>& all) {
    for (int i = 0; i < chain.size(); ++i) {
        const std::string path = prefix.empty() ? chain.name(i) : prefix + '/' + chain.name(i);
        const std::size_t first = all.size();
        if (const opened_layer<T, D> o = opened(chain[i])) {
            collect_units(*o.inside.layers, s, o.path(path), all);
            for (std::size_t u = first + 1; o.skips() && u < all.size(); ++u)
                all[u].in = bundle_shape(o.skip(s), all[u].in);
            if (o.skips() && o.beside.layers->size() > 0) {  // runs with the first of them
                const layer_cost c = o.beside.layers->cost(s);
                all[first].cost.add_work(c);
                all[first].cost.saves_input = all[first].cost.saves_input || c.saves_input;
                all[first].saved_bytes += saved_with_ends<T>(c, s, o.skip(s));
            }
        } else {
            const layer_cost c = chain[i].cost(s);
            all.push_back({path, s, c, saved_with_ends<T>(c, s, chain[i].output_shape(s))});
        }
        s = with_context("layer " + path, [&] { return chain[i].output_shape(s); });
    }
}

/// Moves the layers of `chain`, whose units are numbered from 0, to one chain for each part between the cuts.
template <class T, Device D>
std::vector<sequential<T, D>> cut_chain(sequential<T, D>& chain, const std::vector<int>& cuts, shape s) {
    std::vector<sequential<T, D>> parts(cuts.size() + 1);
    const auto part_of = [&](int unit) {
        return static_cast<std::size_t>(std::ranges::upper_bound(cuts, unit) - cuts.begin());
    };
    int begin = 0;
    for (int i = 0; i < chain.size(); ++i) {
        const opened_layer<T, D> o = opened(chain[i]);
        const int end = begin + (o ? count_units(*o.inside.layers) : 1);
        const std::size_t first = part_of(begin), last = part_of(end - 1);
        const shape out = chain[i].output_shape(s);
        if (first == last) {
            parts[first].add(chain.name(i), std::move(chain[i]));
        } else {
            std::vector<int> inside;
            for (std::size_t k = first; k < last; ++k) inside.push_back(cuts[k] - begin);
            std::vector<model_unit> units;
            collect_units(*o.inside.layers, s, "", units);
            const shape skip = o.skips() ? o.skip(s) : shape{};
            std::vector<sequential<T, D>> pieces = cut_chain(*o.inside.layers, inside, s);
            for (std::size_t k = 0; k < pieces.size(); ++k) {
                sequential<T, D>& part = parts[first + k];
                const bool begins = k == 0;
                if (o.skips()) {
                    const shape& reads = begins ? s : units[static_cast<std::size_t>(inside[k - 1])].in;
                    part.add(chain.name(i), skip_part<T, D>(std::move(pieces[k]),
                                                            {.first = begins,
                                                             .last = k + 1 == pieces.size(),
                                                             .how = o.how,
                                                             .skip_leads = o.beside_leads,
                                                             .name = o.inside.name,
                                                             .skip_name = o.beside.name,
                                                             .skip = skip,
                                                             .activation = reads},
                                                            begins ? std::move(*o.beside.layers) : sequential<T, D>{}));
                } else if (o.inside.name.empty()) {
                    part.add(chain.name(i), std::move(pieces[k]));
                } else {
                    sequential<T, D> named;
                    named.add(o.inside.name, std::move(pieces[k]));
                    part.add(chain.name(i), std::move(named));
                }
            }
        }
        begin = end;
        s = out;
    }
    return parts;
}

}  // namespace detail

/// The units of a model for inputs of shape `in`, in order. Throws, naming the layer, where shapes do not fit.
template <class T, Device D>
std::vector<model_unit> units_of(sequential<T, D>& model, const shape& in) {
    std::vector<model_unit> all;
    detail::collect_units(model, in, "", all);
    return all;
}

/// Numbers of the units with these paths, to cut in front of them. Throws where a path is no unit.
inline std::vector<int> cuts_before(const std::vector<model_unit>& units, const std::vector<std::string>& paths) {
    std::vector<int> cuts;
    for (const std::string& path : paths) {
        const auto is = [&](const model_unit& u) { return u.path == path || u.path.starts_with(path + '/'); };
        const auto at = std::ranges::find_if(units, is);
        if (at == units.end()) {
            for (const model_unit& u : units)
                if (path.starts_with(u.path + '/'))
                    fail("a cut before ", path, ": it lies inside ", u.path, ", which runs in one piece");
            fail("a cut before ", path, ": the model has no such layer");
        }
        cuts.push_back(static_cast<int>(at - units.begin()));
    }
    return cuts;
}

/// A model in stages; what was the model is empty of layers afterwards. `cuts`: units in front of which it is cut,
/// ascending. `in`: shape of a batch of one sample. Throws where a stage would have no unit.
template <class T, Device D>
std::vector<sequential<T, D>> cut(sequential<T, D>& model, const shape& in, const std::vector<int>& cuts) {
    require(in.rank() > 0 && in.front() == 1, "cut: the shape ", in, " is not that of one sample (1, …)");
    int before = 0;
    const int units = detail::count_units(model);
    for (const int c : cuts) {
        require(c > before && c < units, "cut: in front of unit ", c, " after ", before, ", of a model of ", units,
                " units; every stage needs at least one");
        before = c;
    }
    auto stages = detail::cut_chain(model, cuts, in);
    model = {};
    return stages;
}

/// Shapes of what enters each stage, for a batch of one sample; then that of what leaves the last one.
template <class T, Device D>
std::vector<shape> boundaries_of(const std::vector<sequential<T, D>>& stages, const shape& in) {
    std::vector<shape> all{in};
    for (const auto& s : stages) all.push_back(s.output_shape(all.back()));
    return all;
}

}  // namespace cairn
