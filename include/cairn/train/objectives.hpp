#pragma once
// Objectives by their names in a workload file:
//   [loss] kind = cross_entropy | mse | answers | reconstruction | dice | dice_cross_entropy
// or what another header enters (register_objective). Without it the data decide: cross_entropy of classes, mse of
// values, answers of answers.

#include <cairn/comm/any.hpp>
#include <cairn/objectives/answers.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/field_regression.hpp>
#include <cairn/objectives/next_token.hpp>
#include <cairn/objectives/node_classification.hpp>
#include <cairn/objectives/reconstruction.hpp>
#include <cairn/objectives/regression.hpp>
#include <cairn/objectives/segmentation.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>

#include <string>

namespace cairn {

/// The usual loss of targets.
inline const char* loss_of(target_kind targets) {
    constexpr const char* names[] = {"cross_entropy", "mse", "answers"};
    return names[static_cast<int>(targets)];
}

/// The data and ranks that an objective is made for.
struct objective_ends {
    target_info info;
    shape sample;
    tensor_axis<any_communicator>* cut_over = nullptr;  // the ranks over which outputs of classes are cut; null: whole

    /// Throws, naming loss.kind, unless the data have these targets.
    void need(const char* kind, target_kind targets) const {
        constexpr const char* names[] = {"classes", "values", "answers"};
        require(info.kind == targets, "loss.kind = ", kind, ": the targets of these data are ",
                names[static_cast<int>(info.kind)], "; set loss.kind = ", loss_of(info.kind), ", or leave it out");
    }
    bool has_a_class_each(label_place place) const {
        return info.kind == target_kind::classes && info.labels_each > 1 && info.labels == place;
    }
    /// A row of info.count() numbers a sample, or, where it has several labels, for each of them.
    shape rows() const { return info.labels_each > 1 ? shape{info.labels_each, info.count()} : shape{info.count()}; }
    /// The axes of a sample, without channels: the grid of its voxels.
    shape grid() const { return shape(std::span(sample.begin(), static_cast<std::size_t>(sample.rank() - 1))); }
};

/// The network's output for a sample, and the objective over it.
template <Device D>
struct objective_maker {
    shape (*outputs)(const objective_ends&);
    any_objective<D> (*make)(configuration&, const objective_ends&);
};
template <Device D>
using objectives = registry<objective_maker<D>>;

/// Enters an objective. Entry: `name`; outputs(objective_ends), which throws where the data do not fit;
/// make<D>(configuration&, objective_ends), which reads its settings.
template <class Entry, class... Targets>
struct register_objective {
    register_objective() { (enter<typename Targets::device>(), ...); }

private:
    template <Device D>
    static void enter() {
        const auto make = [](configuration& settings, const objective_ends& ends) -> any_objective<D> {
            return Entry::template make<D>(settings, ends);
        };
        objectives<D>::global().add(Entry::name, typeid(Entry), {&Entry::outputs, make});
    }
};
template <class Entry>
struct register_objective<Entry, entered_elsewhere> {};

/// Over targets of data as they are: by cross-entropy, or mean squares.
template <Device D>
any_objective<D> objective_of_data(const objective_ends& ends, const cross_entropy& loss = {}) {
    if (ends.info.kind == target_kind::values && ends.info.labels_each > 1) return field_regression(ends.info);
    if (ends.info.kind == target_kind::values) return regression{ends.info};
    if (ends.info.kind == target_kind::answers) return answers{ends.info};
    if (ends.has_a_class_each(label_place::voxels)) return segmentation<>{{ends.info, loss}, ends.grid()};
    if (ends.has_a_class_each(label_place::nodes)) return node_classification(loss);
    if (!ends.has_a_class_each(label_place::tokens)) return classification{{ends.info, loss}};
    if (ends.cut_over)
        return next_token<vocabulary_cross_entropy<any_communicator>>{
            {ends.info, {ends.cut_over, ends.info.count(), loss.label_smoothing}}};
    return next_token<>{{ends.info, loss}};
}

namespace detail {

struct cross_entropy_entry {
    static constexpr const char* name = "cross_entropy";
    static shape outputs(const objective_ends& ends) {
        ends.need(name, target_kind::classes);
        return ends.rows();
    }
    template <Device D>
    static any_objective<D> make(configuration& settings, const objective_ends& ends) {
        cross_entropy loss;
        loss.label_smoothing = settings.get("loss.label_smoothing", 0.0, from_below(0, 1));
        loss.class_weights = settings.get("loss.class_weights", std::vector<double>{}, from_to(0, 1e6));
        loss.by_rows = true;
        const auto given = std::ssize(loss.class_weights);
        require(given == 0 || given == ends.info.count(), "loss.class_weights has ", given, " numbers for ",
                ends.info.count(), " classes: ", listed(ends.info.names));
        require(given == 0 || !ends.cut_over, "loss.class_weights: the classes are cut over ranks (parallel.tensor)");
        return objective_of_data<D>(ends, loss);
    }
};

struct mse_entry {
    static constexpr const char* name = "mse";
    static shape outputs(const objective_ends& ends) {
        ends.need(name, target_kind::values);
        return ends.rows();
    }
    template <Device D>
    static any_objective<D> make(configuration&, const objective_ends& ends) {
        return objective_of_data<D>(ends);
    }
};

struct answers_entry {
    static constexpr const char* name = "answers";
    static shape outputs(const objective_ends& ends) {
        ends.need(name, target_kind::answers);
        return ends.rows();
    }
    template <Device D>
    static answers make(configuration&, const objective_ends& ends) {
        return {ends.info};
    }
};

struct reconstruction_entry {
    static constexpr const char* name = "reconstruction";
    static shape outputs(const objective_ends& ends) { return {ends.sample.size()}; }
    template <Device D>
    static reconstruction make(configuration&, const objective_ends&) {
        return {};
    }
};

template <bool WithCrossEntropy>
struct dice_entry {
    static constexpr const char* name = WithCrossEntropy ? "dice_cross_entropy" : "dice";
    static shape outputs(const objective_ends& ends) {
        require(ends.has_a_class_each(label_place::voxels), "loss.kind = ", name,
                " is for volumes with a class for each voxel (data.format = segmentation); leave it out");
        return ends.rows();
    }
    template <Device D>
    static segmentation<dice> make(configuration& settings, const objective_ends& ends) {
        return {{ends.info,
                 {.smooth = settings.get("loss.dice_smooth", 1.0, above_to(0, 1e9)),
                  .cross_entropy_weight = WithCrossEntropy ? 1.0 : 0.0}},
                ends.grid()};
    }
};

static const register_objective<cross_entropy_entry, CAIRN_TARGETS> cross_entropy_is_known;
static const register_objective<mse_entry, CAIRN_TARGETS> mse_is_known;
static const register_objective<answers_entry, CAIRN_TARGETS> answers_are_known;
static const register_objective<reconstruction_entry, CAIRN_TARGETS> reconstruction_is_known;
static const register_objective<dice_entry<false>, CAIRN_TARGETS> dice_is_known;
static const register_objective<dice_entry<true>, CAIRN_TARGETS> dice_cross_entropy_is_known;

}  // namespace detail

/// How the objective that the settings name is made.
template <Device D>
const objective_maker<D>& read_objective(configuration& settings, const target_info& info) {
    const std::string kind = settings.choice("loss.kind", objectives<D>::global().names(), loss_of(info.kind));
    return objectives<D>::global().at("loss.kind", kind);
}

}  // namespace cairn
