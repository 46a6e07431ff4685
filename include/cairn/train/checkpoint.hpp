#pragma once
// The saved state of a run, state.cairn: all that a resumed run needs to go on with the same bits.
//   model/PATH           parameters              loader_epoch, loader_batch    the next batch
//   buffers/PATH         running statistics      loss_scale/…                  of layers in float16
//   optimizer/FIELD/…    and optimizer_steps     kfac/…                        of any preconditioner
//   admm/VARIABLE/…      where ADMM trains, and its numbers
//   compression/…        what compressors of every rank keep
//   divergence/…         losses at the start and of late
//   loader_batch_size, loader_batches, loader_samples    of an epoch: what cursor, steps and schedules count in
// Rank 0 reads and writes it. What ranks hold in parts is gathered on rank 0 for as long as a checkpoint is saved or
// loaded: shards of the optimizer, slices of a tensor axis, stages of a pipeline by their parameters' paths. The file
// does not depend on the number of ranks, nor on the mesh (but for `compression`).

#include <cairn/comm/wait_for.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/parallel/sharded_state.hpp>
#include <cairn/state/burst_buffer.hpp>
#include <cairn/state/staged.hpp>
#include <cairn/state/state_file.hpp>
#include <cairn/train/gathered_tensors.hpp>
#include <cairn/train/run_parts.hpp>

#include <filesystem>
#include <span>

namespace cairn {

namespace detail {

/// The whole state of a run, with what other ranks hold of it. Made on all ranks together.
template <Device D, class T>
class gathered_state {
public:
    explicit gathered_state(run_parts<D, T>& run) : run_(run) {
        if (run.replicas.share_optimizer()) optimizer_.emplace(run.update.trainer->optimizer(), *run.model.weights);
        if (run.replicas.compresses) {
            std::vector<named_tensor<float>> all;
            for (auto& [name, t] : run.replicas.ranks->gradients.tensors()) all.push_back({name, t.share()});
            for (auto& [name, t] : run.replicas.ranks->gradients.tensors_on_device())
                all.push_back({name, host_residuals_.host_of(t)});
            residuals_.emplace(run.replicas.ranks->everyone, std::move(all), gathered_tensors::names::by_rank);
        }
        if (run.update.curvature) curvature_ = run.update.curvature->tensors();
        // Whole tensors of a stage on the first of its tensor ranks, then those of all stages on rank 0.
        if (is_first_replica() && run.model.over.tensor)
            slices_.emplace(run.mesh.grid["tensor"].host, tensors_of_rank(), *run.model.weights);
        if (is_first_replica() && run.model.plan && run.mesh.grid.coordinate("tensor") == 0)
            stages_.emplace(run.mesh.grid["pipeline"].host, slices_ ? slices_->tensors() : tensors_of_rank());
        if (run.update.curvature && stages_)
            stage_numbers_.emplace(run.mesh.grid["pipeline"].host, run.update.curvature->counters());
    }
    ~gathered_state() {
        curvature_.clear();
        if (run_.update.curvature) run_.update.curvature->release();
    }
    gathered_state(const gathered_state&) = delete;
    gathered_state& operator=(const gathered_state&) = delete;

    /// Collective: rank 0 gets what the others hold.
    void collect() {
        if (optimizer_) optimizer_->collect(run_.replicas.ranks->over.device, run_.replicas.ranks->owners);
        if (is_first_replica()) {
            if (slices_) slices_->collect();
            if (stages_) stages_->collect();
            if (stage_numbers_) stage_numbers_->collect();
        }
        if (residuals_) residuals_->collect();
        if (run_.model.scaler) scale_ = run_.model.scaler->saved();
        const cursor next = run_.batches.train->position();
        loader_epoch_ = next.epoch;
        loader_batch_ = next.batch;
        counted_ = counted_here();
    }

    /// By the node's disk where there is a burst buffer.
    void write(const std::filesystem::path& file, burst_buffer* through) {
        const state_view all = view(run_.model.scales_itself(), run_.update.activations != nullptr, true);
        through ? through->save(file, all) : save_state(file, all);
    }

    void read(const std::filesystem::path& file) {
        // A run may go on in another precision than that in which it was saved, and with other activation memory.
        const auto has = [held = list_state(file)](const char* name) {
            return std::ranges::any_of(held, [&](const auto& entry) { return entry.name == name; });
        };
        const bool has_scale = has("loss_scale/scale");
        load_state(file, view(has_scale, has("activations"), has("loader_batches")));
        host_copies_.put_back();
        if (has_scale && run_.model.scaler) run_.model.scaler->restore(scale_);
    }

    /// Collective: what rank 0 has read becomes the state of every rank.
    void distribute() {
        if (is_first_replica()) {
            if (stages_) stages_->distribute();
            if (slices_) slices_->distribute();
            host_copies_.put_back();
        }
        if (stage_numbers_) stage_numbers_->distribute();
        if (run_.replicas.ranks) {
            share_numbers();
            share_tensors();
        }
        if (run_.update.activations) {
            if (run_.replicas.ranks) activations_ = broadcast_text(run_.replicas.ranks->everyone, activations_);
            restore(*run_.update.activations, std::span(&activations_, 1));
        }
        require_same_epochs();
        run_.update.algorithm->stages().values_changed();
        run_.update.algorithm->state_loaded();
        run_.batches.train->seek({static_cast<index_t>(loader_epoch_), static_cast<index_t>(loader_batch_)});
    }

private:
    // In what a cursor, a number of steps and the schedules count; 0 in a state that does not say.
    struct epoch_numbers {
        std::int64_t batch = 0, batches = 0, samples = 0;
        bool operator==(const epoch_numbers&) const = default;
        std::string text() const {
            return concat(samples, " training samples, train.batch = ", batch, ", ", batches, " batches an epoch");
        }
    };

    epoch_numbers counted_here() const {
        return {run_.task.batch, run_.batches.train->batches_per_epoch(), run_.task.data.train.size()};
    }

    void require_same_epochs() const {
        require(counted_ == epoch_numbers{} || counted_ == counted_here(), "the run was saved with ", counted_.text(),
                "; with the settings and data of its continuation these are ", counted_here().text(),
                ". Go on with the same train.batch, train.drop_last and data, or start a new run");
    }

    state_view view(bool with_scale, bool with_activations, bool with_epochs) {
        state_view s;
        if (with_scale) {
            s.add("loss_scale/scale", scale_.scale);
            s.add("loss_scale/good_steps", scale_.good_steps);
        }
        for (const auto& [name, t] : tensors_of_model()) s.add(name, t);
        algorithm_ = run_.update.algorithm->state();
        for (auto& [name, number] : algorithm_.counters) s.add(name, *number);
        for (auto& [name, number] : algorithm_.numbers) s.add(name, *number);
        if (run_.update.activations) activations_ = text_of(*run_.update.activations);
        if (with_activations) s.add("activations", activations_);
        if (stage_numbers_)
            for (auto& [name, number] : stage_numbers_->numbers()) s.add("kfac/" + name, number);
        else if (run_.update.curvature)
            for (auto& [name, number] : run_.update.curvature->counters()) s.add("kfac/" + name, *number);
        if (run_.update.quadratic) {
            s.add("kfac/lambda", run_.update.quadratic->lambda());
            s.add("kfac/quadratic_steps", run_.update.quadratic->steps());
        }
        if (residuals_) s.add("compression", residuals_->tensors());
        divergence_watch& watch = run_.update.divergence;
        s.add("divergence/labels", watch.labels);
        s.add("divergence/start", watch.start);
        s.add("divergence/recent", watch.recent);
        s.add("divergence/weight", watch.weight);
        s.add("divergence/most", watch.most);
        s.add("loader_epoch", loader_epoch_);
        s.add("loader_batch", loader_batch_);
        if (with_epochs) {
            s.add("loader_batch_size", counted_.batch);
            s.add("loader_batches", counted_.batches);
            s.add("loader_samples", counted_.samples);
        }
        return s;
    }

    // Of the ranks that hold the same, the one that writes and reads.
    bool is_first_replica() const {
        return run_.mesh.grid.coordinate("data") == 0 && run_.mesh.grid.coordinate("spatial") == 0;
    }

    // On rank 0: of the whole model.
    std::vector<named_tensor<float>> tensors_of_model() {
        if (stages_) return stages_->tensors();
        return slices_ ? slices_->tensors() : tensors_of_rank();
    }

    // Parameters, statistics, the optimizer's and a preconditioner's state of the layers that are here.
    std::vector<named_tensor<float>> tensors_of_rank() {
        host_copies_.clear();
        std::vector<named_tensor<float>> all;
        for (const auto& [name, p] : run_.model.weights->parameters())
            all.push_back({"model/" + name, host_copies_.host_of(p->value)});
        for (const auto& [name, t] : run_.model.buffers()) all.push_back({"buffers/" + name, host_copies_.host_of(*t)});
        for (const auto& [name, t] : algorithm_tensors()) all.push_back({name, host_copies_.host_of(t)});
        for (const auto& [name, t] : curvature_) all.push_back({"kfac/" + name, host_copies_.host_of(t)});
        if (run_.update.quadratic)
            for (const auto& [name, p] : run_.model.weights->parameters()) {
                const index_t at = p->value.data() - run_.model.weights->values().data();
                all.push_back({"kfac/previous/" + name,
                               host_copies_.host_of(run_.update.quadratic->previous().slice(at, p->shape))});
            }
        return all;
    }

    std::vector<named_tensor<float, D>> algorithm_tensors() {
        if (!optimizer_) return run_.update.algorithm->state().tensors;
        std::vector<named_tensor<float, D>> all = optimizer_->tensors();
        for (auto& one : all) one.name = "optimizer/" + one.name;
        return all;
    }

    template <class Number>
    void share(Number& number) {
        broadcast(run_.replicas.ranks->everyone, std::span<Number>(&number, 1), 0);
    }

    void share_numbers() {
        algorithm_ = run_.update.algorithm->state();
        for (auto& [name, number] : algorithm_.counters) share(*number);
        for (auto& [name, number] : algorithm_.numbers) share(*number);
        share(loader_epoch_);
        share(loader_batch_);
        share(counted_);
        share(run_.update.divergence);
        if (run_.model.scales_itself()) {
            scale_ = run_.model.scaler->saved();
            share(scale_.scale);
            share(scale_.good_steps);
            run_.model.scaler->restore(scale_);
        }
        if (run_.update.curvature)
            for (auto& [name, number] : run_.update.curvature->counters())  // of the layers that are here
                broadcast(run_.replicas.ranks->over.host, std::span<std::int64_t>(number, 1), 0);
        if (run_.update.quadratic) {
            share(run_.update.quadratic->lambda());
            share(run_.update.quadratic->steps());
        }
    }

    void share_tensors() {
        run_.start_ranks();  // parameters and buffers
        const auto give = [&](const tensor<float, D>& t) {
            broadcast(run_.replicas.ranks->over.device, t.share().span(), 0);
        };
        for (const auto& [name, t] : algorithm_tensors()) give(t);
        for (const auto& [name, t] : curvature_) give(t);
        if (run_.update.quadratic) give(run_.update.quadratic->previous());
        if (optimizer_) optimizer_->distribute();
        if (residuals_) residuals_->distribute();
        host_residuals_.put_back();
    }

    run_parts<D, T>& run_;
    std::optional<whole_state<float, D>> optimizer_;  // where ranks share it
    std::optional<gathered_tensors> residuals_;       // of compressors
    std::optional<slice_tensors> slices_;             // of a tensor axis
    std::optional<gathered_tensors> stages_;          // of a pipeline
    std::optional<gathered_numbers> stage_numbers_;   // of a preconditioner there
    std::vector<named_tensor<float, D>> curvature_;
    algorithm_state<D> algorithm_;
    staged_tensors<D> host_copies_, host_residuals_;
    loss_scaler::state scale_;
    std::string activations_;  // bounds and plan
    std::int64_t loader_epoch_ = 0, loader_batch_ = 0;
    epoch_numbers counted_;
};

}  // namespace detail

/// The error of a run that training has spoilt; call before anything is saved.
template <Device D, class T>
[[noreturn]] void fail_diverged(run_parts<D, T>& run, const std::string& what) {
    fail_divergence(
        "after step ", run.update.algorithm->steps(), ": ", what,
        "; nothing was saved, an earlier state.cairn is as it was. Lower the learning rate, warm up, or clip");
}

/// Collective: saves the run to `file` of rank 0. Throws on all ranks alike, leaving an earlier file as it is, where a
/// parameter or a running statistic is not finite. `through`: rank 0's, or null.
template <Device D, class T>
void save_checkpoint(run_parts<D, T>& run, const std::filesystem::path& file, burst_buffer* through = nullptr) {
    std::string mine;
    for (const auto& [name, p] :
         run.model.weights->parameters())  // not gradients: those of a skipped step are a rank's own
        if (mine.empty()) mine = first_non_finite(name, p->value);
    for (const auto& [name, t] : run.model.buffers())
        if (mine.empty()) mine = first_non_finite(name, *t);
    for (const std::string& found : all_gather_text(run.world, mine))  // stages have other parameters
        if (!found.empty()) fail_diverged(run, found);
    run.average_buffers();
    detail::gathered_state<D, T> state(run);
    state.collect();
    if (run.is_root()) state.write(file, through);
    wait_for(run.world, 0);
}

/// Collective: the run goes on where the one that saved `file` of rank 0 was. Throws where the file is of another
/// network or set-up.
template <Device D, class T>
void load_checkpoint(run_parts<D, T>& run, const std::filesystem::path& file) {
    detail::gathered_state<D, T> state(run);
    if (run.is_root()) state.read(file);
    wait_for(run.world, 0);
    state.distribute();
}

}  // namespace cairn
