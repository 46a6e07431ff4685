#pragma once
// Old names and values of settings. Workload files and records of earlier versions use them: they are read for one
// release, with a message that gives the new name (settings.hpp). course/names.md has the table for people.

#include <array>
#include <string>
#include <string_view>

namespace cairn {

struct renamed_setting {
    std::string_view before, now;
};

inline constexpr std::array renamed_settings{
    renamed_setting{"kfac.adapt_by", "kfac.damping_decay"},
    renamed_setting{"kfac.adapt_every", "kfac.damping_interval"},
    renamed_setting{"kfac.balance", "kfac.assignment_strategy"},
    renamed_setting{"kfac.bound", "kfac.broadcast_error_bound"},
    renamed_setting{"kfac.decompose_every", "kfac.inverse_update_interval"},
    renamed_setting{"kfac.factor_every", "kfac.factor_update_interval"},
    renamed_setting{"kfac.lag", "kfac.inverse_staleness"},
    renamed_setting{"kfac.least_damping", "kfac.min_damping"},
    renamed_setting{"kfac.model_examples", "kfac.model_example_stride"},
    renamed_setting{"kfac.sample_examples", "kfac.example_stride"},
    renamed_setting{"kfac.sample_positions", "kfac.position_stride"},
    renamed_setting{"kfac.scale_shift", "kfac.norm_layers"},
    renamed_setting{"kfac.step", "kfac.step_size"},
    renamed_setting{"kfac.together", "kfac.colocate_factors"},
    renamed_setting{"model.hidden_width", "model.ffn_dim"},
    renamed_setting{"model.width", "model.embedding_dim"},
    renamed_setting{"muon.rest", "muon.adam_lr_ratio"},
    renamed_setting{"optimizer.inner", "optimizer.base"},
    renamed_setting{"optimizer.trust", "optimizer.trust_coefficient"},
    renamed_setting{"parallel.zero", "parallel.zero_stage"},
    renamed_setting{"schedule", "lr_schedule"},  // the section as a whole
    renamed_setting{"schedule.factor", "lr_schedule.gamma"},
    renamed_setting{"schedule.kind", "lr_schedule.kind"},
    renamed_setting{"schedule.milestones", "lr_schedule.milestones"},
    renamed_setting{"schedule.power", "lr_schedule.power"},
    renamed_setting{"schedule.rise", "lr_schedule.pct_start"},
    renamed_setting{"schedule.start", "lr_schedule.initial_fraction"},
    renamed_setting{"schedule.warmup_epochs", "lr_schedule.warmup_epochs"},
    renamed_setting{"train.graph", "train.cuda_graph"},
    renamed_setting{"train.pixels", "train.upload_uint8"},
    renamed_setting{"train.products", "train.matmul_precision"},
    renamed_setting{"train.stash", "train.activation_memory"},
};

/// A value of the setting `now`, which may have been given by its old name.
struct renamed_value {
    std::string_view setting, before, now;
};

inline constexpr std::array renamed_values{
    renamed_value{"train.activation_memory", "sqrt", "recompute"},
    renamed_value{"train.activation_memory", "smallest", "recompute_smallest"},
    renamed_value{"kfac.fisher", "sampled", "mc"},
    renamed_value{"kfac.step_size", "inner", "optimizer"},
    renamed_value{"kfac.step_size", "quadratic", "quadratic_model"},
};

/// The setting's name today.
inline std::string current_name(std::string_view path) {
    for (const renamed_setting& r : renamed_settings)
        if (path == r.before) return std::string(r.now);
    return std::string(path);
}

/// The value's name today, of the setting with today's name.
inline std::string current_value(std::string_view setting, std::string_view value) {
    for (const renamed_value& r : renamed_values)
        if (setting == r.setting && value == r.before) return std::string(r.now);
    return std::string(value);
}

}  // namespace cairn
