#pragma once
// The state of a run in the pieces that this rank has (state/piece.hpp): all that a resumed run needs to go on with the
// same bits.
//   model/PATH               parameters                 loader_epoch, loader_batch    the next batch
//   buffers/PATH             running statistics         loss_scale/…                  of layers in float16
//   optimizer/FIELD/PATH     and optimizer_steps        kfac/…                        of any preconditioner
//   ema/PATH, ema/statistics/PATH                       of the running mean of weights
//   admm/VARIABLE/…          where ADMM trains, and its numbers
//   stream/PATH, stream/known   what layers remember of running texts, by row of the batch
//   compression/FIELD/PATH   what compressors keep      divergence/…                  losses at the start and of late
//   loader_batch_size, loader_batches, loader_samples, loader_stream   of an epoch: what cursor, steps and schedules
//                            count in; loader_batches_before: in those before
//   activations              bounds and plan of packed activations
//   data_learned             what the data set has learned of its training part, such as means and categories
//   machine/kernels          which kernels were chosen (kernel_choices.hpp); in no digest of a version
//   progress/…               what metrics.jsonl has not yet of the last steps
// Tensors have the names and extents of the whole model, so that any mesh reads what any other has saved. Ranks that
// hold the same divide it. What is a rank's own has an axis more, of the ranks with the same parameters: running
// statistics, of which another number of ranks takes the mean; residuals of compressors, which are dealt out again so
// that their sum stays. Numbers are those of rank 0.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/state/saved_state.hpp>
#include <cairn/state/staged.hpp>
#include <cairn/state/state_view.hpp>
#include <cairn/train/activation_state.hpp>
#include <cairn/train/kernel_choices.hpp>
#include <cairn/train/metrics_log.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

enum class state_use { save, load };

/// See the top of the file. It refers to the run's memory, and has copies of a device's.
template <Device D, class T>
class run_state {
public:
    /// To load from `file_of_whole_tensors`, compressors' tensors go by the buckets' numbers.
    run_state(run_parts<D, T>& run, run_progress& progress, state_use use, bool file_of_whole_tensors = false)
        : run_(run), progress_(progress), use_(use), old_names_(file_of_whole_tensors) {
        const cursor next = run_.batches.train->position();
        loader_epoch_ = next.epoch;
        loader_batch_ = next.batch;
        if (use_ == state_use::save) counted_ = counted_here(next);
        if (run_.model.scaler) scale_ = run_.model.scaler->saved();
        add_model();
        add_average();
        add_algorithm();
        add_curvature();
        add_residuals();
        add_streams();
        add_numbers();
    }
    ~run_state() {
        view_ = {};
        if (run_.update.curvature) run_.update.curvature->release();
    }
    run_state(const run_state&) = delete;
    run_state& operator=(const run_state&) = delete;

    const state_view& view() const { return view_; }

    /// Parameters and statistics were loaded.
    void values_loaded() {
        host_copies_.put_back();
        run_.update.algorithm->stages().values_changed();
        if (run_.update.average) run_.update.average->restart();
    }
    /// The run goes on from what was loaded. Throws where epochs have other lengths than when it was saved.
    void loaded() {
        host_copies_.put_back();
        std::copy_n(hits_.data(), 2, progress_.hits.begin());
        take_kernels();
        if (loaded_scale() && run_.model.scaler) run_.model.scaler->restore(scale_);
        if (run_.update.activations && !activations_.empty())
            restore(*run_.update.activations, std::span(&activations_, 1));
        const cursor next{static_cast<index_t>(loader_epoch_), static_cast<index_t>(loader_batch_)};
        require_same_epochs(counted_here(next));
        require_same_learning();
        run_.update.algorithm->stages().values_changed();
        run_.update.algorithm->state_loaded();
        run_.batches.train->seek(next);
    }

private:
    // In what a cursor, a number of steps and the schedules count; 0 in a state that does not say.
    struct epoch_numbers {
        std::int64_t batch = 0, batches = 0, samples = 0, stream = 0;
        std::int64_t before = -1;  // batches of the epochs before; -1: not told
        bool operator==(const epoch_numbers& o) const {
            return batch == o.batch && batches == o.batches && samples == o.samples && stream == o.stream &&
                   (before == o.before || before < 0 || o.before < 0);
        }
        std::string text() const {
            return concat(samples, " training samples, train.batch = ", batch, ", ", batches, " batches an epoch",
                          before > 0 ? concat(" (", before, " in earlier ones)") : "",
                          stream ? ", data.stream = true" : "");
        }
    };

    epoch_numbers counted_here(cursor at) const {
        const phase_list& phases = run_.batches.train->phases();
        const training_phase& phase = phases.all[phases.of_epoch(at.epoch)];
        return {phase.batch, phase.batches, run_.task.data.train.size(), run_.task.data.stream,
                phases.before(at.epoch)};
    }
    void require_same_epochs(const epoch_numbers& here) const {
        require(counted_ == epoch_numbers{} || counted_ == here, "the run was saved with ", counted_.text(),
                "; with the settings and data of its continuation these are ", here.text(),
                ". Go on with the same train.batch, phases, train.drop_last, data.stream and data, or start a new run");
    }
    static std::string learned_here(const data_parts& data) {
        std::string text;
        for (const std::string& line : data.learned) text += line + '\n';
        return text;
    }
    // A network upon other means, bins or categories answers another question.
    void require_same_learning() const {
        const std::string here = learned_here(run_.task.data);
        if (learned_.empty() || learned_ == here) return;
        const auto first = static_cast<std::size_t>(std::ranges::mismatch(learned_, here).in1 - learned_.begin());
        const auto line_at = [&](const std::string& text) {
            const std::size_t begin = text.substr(0, first).rfind('\n') + 1;
            return text.substr(begin, text.find('\n', begin) - begin);
        };
        fail("the run was saved with data of which it learned '", line_at(learned_), "'; here they give '",
             line_at(here), "'. Go on with the same file, split and encodings, or start a new run");
    }
    // Those of this machine, as rank 0 sees it: all ranks take the same.
    void take_kernels() const {
        const bool same = machine_of_choices(kernels_) == perf::fingerprint();
        if (broadcast_from_root(run_.world, same) != 0) take_kernel_choices(kernels_);
    }
    bool loaded_scale() const { return scale_.scale != 0; }

    int replicas() const { return run_.replicas.over->size(); }
    int replica() const { return run_.replicas.over->rank(); }
    int tensor_ranks() const { return run_.mesh.grid.size("tensor"); }
    int tensor_rank() const { return run_.mesh.grid.coordinate("tensor"); }
    static bool is_sliced(const parameter<float, D>& p) {
        return !p.layout.is_whole() && std::ranges::count(p.layout.replicated_over, "tensor") == 0;
    }
    // Of what all ranks with these parameters hold: those along the data axes, and, of what is not sliced, along the
    // tensor axis too.
    piece_share share_of(bool sliced) const {
        if (sliced) return {replica(), replicas()};
        return {replica() * tensor_ranks() + tensor_rank(), replicas() * tensor_ranks()};
    }
    // Of what one of the ranks with these parameters holds.
    piece_share alone(bool sliced) const { return {0, sliced || tensor_rank() == 0 ? 1 : 0}; }
    piece_share of_root() const { return {0, run_.is_root() ? 1 : 0}; }

    // f(path, parameter, elements of it, their first in `where`) for what elements `where` of the arena have of each.
    template <class F>
    void for_parameters(range where, F&& f) const {
        arena<float, D>& weights = *run_.model.weights;
        for (const auto& [path, p] : weights.parameters()) {
            const index_t first = p->value.data() - weights.values().data();
            const index_t begin = std::max(first, where.begin), end = std::min(first + p->shape.size(), where.end());
            if (begin < end || (p->shape.size() == 0 && where.begin == 0))
                f(path, *p, range{begin - first, std::max<index_t>(0, end - begin)}, begin - where.begin);
        }
    }

    // Elements `part` of a parameter, or of a tensor of its shape; with an axis of the ranks that have it, or without.
    enum class rows_of { none, replicas };
    void add_part(const std::string& name, const tensor<float>& t, const parameter<float, D>& p, range part,
                  piece_info info, rows_of rows = rows_of::none) {
        index_t at = 0;
        for (const piece& where : piece::of(p.layout, p.shape, part)) {
            info.where = rows == rows_of::none ? where : where.in_row(replica(), replicas());
            view_.add(name, t.slice(at, {where.count}), info);
            at += where.count;
        }
    }

    void add_model() {
        for_parameters({0, run_.model.weights->values().size()},
                       [&](const std::string& path, const parameter<float, D>& p, range all, index_t) {
                           add_part("model/" + path, host_copies_.host_of(p.value), p, all,
                                    {.where = {}, .share = share_of(is_sliced(p)), .alike = true});
                       });
        for (const auto& [path, p] : run_.model.weights->frozen())
            add_part("model/" + path, host_copies_.host_of(p->value), *p, {0, p->shape.size()},
                     {.where = {}, .share = share_of(is_sliced(*p)), .alike = true});
        for (const auto& [path, t] : run_.model.buffers())
            view_.add("buffers/" + path, host_copies_.host_of(*t),
                      {.where = piece::whole(t->shape()).in_row(replica(), replicas()),
                       .share = {tensor_rank(), tensor_ranks()},
                       .rows = row_change::mean});
    }

    void add_average() {
        if (!run_.update.average) return;
        const tensor<float> mean = host_copies_.host_of(run_.update.average->mean());
        for_parameters({0, mean.size()},
                       [&](const std::string& path, const parameter<float, D>& p, range all, index_t at) {
                           add_part("ema/" + path, mean.slice(at, {all.count}), p, all,
                                    {.where = {}, .share = share_of(is_sliced(p)), .alike = true});
                       });
        for (auto& [path, t] : run_.update.average->statistics())
            view_.add("ema/statistics/" + path, host_copies_.host_of(t),
                      {.where = piece::whole(t.shape()).in_row(replica(), replicas()),
                       .share = {tensor_rank(), tensor_ranks()},
                       .rows = row_change::mean});
    }

    void add_algorithm() {
        algorithm_ = run_.update.algorithm->state();
        for (auto& [name, number] : algorithm_.counters) view_.add(name, *number, {.share = of_root()});
        for (auto& [name, number] : algorithm_.numbers) view_.add(name, *number, {.share = of_root()});
        if (!run_.update.trainer) {  // layers of ADMM are on one rank each
            for (const auto& [name, t] : algorithm_.tensors) view_.add(name, host_copies_.host_of(t));
            return;
        }
        const bool divided = run_.replicas.share_optimizer();
        const range owned = run_.update.trainer->optimizer().owned();
        for (const auto& field : run_.update.trainer->optimizer().flat_state()) {
            const tensor<float> here = host_copies_.host_of(field.t);
            for_parameters(owned, [&](const std::string& path, const parameter<float, D>& p, range part, index_t at) {
                add_part(concat("optimizer/", field.name, '/', path), here.slice(at, {part.count}), p, part,
                         {.where = {}, .share = divided ? alone(is_sliced(p)) : share_of(is_sliced(p))});
            });
        }
    }

    void add_curvature() {
        if (preconditioner<float, D>* const c = run_.update.curvature.get()) {
            const bool saves = use_ == state_use::save, divided = c->divides_state();
            const piece_share share = divided ? piece_share{} : share_of(false);
            const bool first = replica() == 0 && tensor_rank() == 0;  // of the ranks with these layers
            for (const auto& [name, t] : saves ? c->its_tensors() : c->tensors())
                view_.add("kfac/" + name, host_copies_.host_of(t), {.share = share});
            for (auto& [name, number] : saves ? c->its_counters() : c->counters()) {
                const bool of_layer = name.find('/') != std::string::npos;
                const piece_share writer{0, divided ? 1 : first ? 1 : 0};
                view_.add("kfac/" + name, *number, {.share = of_layer ? writer : of_root()});
            }
        }
        if (auto* const q = run_.update.quadratic.get()) {
            view_.add("kfac/lambda", q->lambda(), {.share = of_root()});
            view_.add("kfac/quadratic_steps", q->steps(), {.share = of_root()});
            const tensor<float> previous = host_copies_.host_of(q->previous());
            for_parameters({0, previous.size()},
                           [&](const std::string& path, const parameter<float, D>& p, range part, index_t at) {
                               add_part("kfac/previous/" + path, previous.slice(at, {part.count}), p, part,
                                        {.where = {}, .share = share_of(is_sliced(p))});
                           });
        }
    }

    // What compressors keep of a bucket's gradients, by parameter. What has no element for each gradient (PowerSGD's
    // factors) is the same on all ranks, and goes by the bucket's number.
    void add_residuals() {
        if (!run_.replicas.compresses) return;
        auto& gradients = run_.replicas.ranks->gradients;
        std::vector<std::pair<std::string, tensor<float>>> all;
        for (auto& [name, t] : gradients.tensors()) all.emplace_back(name, t.share());
        for (auto& [name, t] : gradients.tensors_on_device()) all.emplace_back(name, host_copies_.host_of(t));
        for (const auto& [name, t] : all) add_residual(name, t);
    }
    void add_residual(const std::string& name, const tensor<float>& t) {
        piece_info info{.where = piece::whole(t.shape()).in_row(run_.world.rank(), run_.world.size()),
                        .rows = row_change::sum,
                        .optional = true};
        if (old_names_) return view_.add("compression/" + name, t, info);
        // "bucket3/residual" of n values, "bucket3/worker/1/residual" of a chunk of them, "bucket3/server/residual"
        const auto slash = name.find('/');
        std::size_t number = 0;
        std::from_chars(name.data() + std::string_view("bucket").size(), name.data() + slash, number);
        std::string field = name.substr(slash + 1);
        const bucket& b = run_.replicas.ranks->gradients.reducer().buckets().at(number);
        range part{0, b.size()};
        const bool of_server = field.starts_with("server/");
        if (of_server) {
            part = chunk_of(b.size(), replicas(), replica());
        } else if (field.starts_with("worker/")) {
            int chunk = 0;
            const auto behind = field.find('/', 7);
            std::from_chars(field.data() + 7, field.data() + behind, chunk);
            part = chunk_of(b.size(), replicas(), chunk);
            field = "worker" + field.substr(behind);
        }
        if (t.size() != part.count) {
            const int stage = run_.mesh.grid.coordinate("pipeline");
            info.where = piece::whole(t.shape()).in_row(replica(), replicas());
            info.share = {tensor_rank(), tensor_ranks()};
            info.rows = row_change::mean;
            return view_.add(concat("compression/stage", stage, '/', name), t, info);
        }
        for_parameters({b.begin + part.begin, part.count}, [&](const std::string& path, const parameter<float, D>& p,
                                                               range elements, index_t at) {
            const std::string whose = !is_sliced(p) && tensor_rank() > 0 ? concat("tensor", tensor_rank(), '/') : "";
            add_part(concat("compression/", whose, field, '/', path), t.slice(at, {elements.count}), p, elements, info,
                     of_server ? rows_of::none : rows_of::replicas);
        });
        add_padding(concat("compression/", field, "/padding/rank", run_.world.rank(), '/'), t,
                    {b.begin + part.begin, part.count});
    }
    // Gaps between parameters, which compressors take for gradients, too: the same mesh goes on with their bits.
    void add_padding(const std::string& name, const tensor<float>& t, range part) {
        index_t next = part.begin;
        const auto add = [&](index_t end) {
            if (next < end)
                view_.add(concat(name, next, '+', end - next), t.slice(next - part.begin, {end - next}),
                          {.where = {}, .share = {}, .optional = true});
        };
        for_parameters(part, [&](const std::string&, const parameter<float, D>&, range elements, index_t at) {
            add(part.begin + at);
            next = part.begin + at + elements.count;
        });
        add(part.end());
    }

    // Each rank has its rows of the batch.
    void add_streams() {
        stream_memory<float, D>* const memory = run_.streams.train.get();
        if (!memory) return;
        memory->for_layers([&](const std::string& path, const tensor<float, D>& t) {
            piece where = piece::whole(t.shape().with(0, run_.task.batch));
            where.begin[0] = memory->rows().begin;
            where.extent = t.shape();
            where.count = t.size();
            view_.add("stream/" + path, host_copies_.host_of(t), {.where = where, .share = alone(true)});
        });
        view_.add("stream/known", memory->known(), {.share = of_root()});
    }

    void add_numbers() {
        const piece_info needed{.share = of_root()}, optional{.share = of_root(), .optional = true};
        const bool loads = use_ == state_use::load;
        if (run_.model.scales_itself() || loads) {
            view_.add("loss_scale/scale", scale_.scale, optional);
            view_.add("loss_scale/good_steps", scale_.good_steps, optional);
        }
        if (run_.update.activations) activations_ = text_of(*run_.update.activations);
        if (run_.update.activations || loads) view_.add("activations", activations_, optional);
        learned_ = loads ? "" : learned_here(run_.task.data);
        if (!learned_.empty() || loads) view_.add("data_learned", learned_, optional);
        if (!loads && run_.is_root() && !on_phantom_rank()) kernels_ = kernel_choices();
        view_.add("machine/kernels", kernels_, optional);
        divergence_watch& watch = run_.update.divergence;
        view_.add("divergence/labels", watch.labels, needed);
        view_.add("divergence/start", watch.start, needed);
        view_.add("divergence/recent", watch.recent, needed);
        view_.add("divergence/weight", watch.weight, needed);
        view_.add("divergence/most", watch.most, needed);
        view_.add("loader_epoch", loader_epoch_, needed);
        view_.add("loader_batch", loader_batch_, needed);
        view_.add("loader_batch_size", counted_.batch, optional);
        view_.add("loader_batches", counted_.batches, optional);
        view_.add("loader_samples", counted_.samples, optional);
        view_.add("loader_stream", counted_.stream, optional);
        view_.add("loader_batches_before", counted_.before, optional);
        view_.add("progress/loss_sum", progress_.loss_sum, optional);
        view_.add("progress/steps", progress_.steps, optional);
        view_.add("progress/skipped_steps", progress_.skipped_steps, optional);
        const bool first = run_.mesh.grid.coordinate("tensor") == 0 && run_.mesh.grid.coordinate("pipeline") == 0;
        hits_ = tensor<double>({2}, memory_category::workspace);
        std::ranges::copy(progress_.hits, hits_.data());
        view_.add("progress/hits", hits_,
                  {.where = piece::whole({2}).in_row(replica(), replicas()),
                   .share = {0, first ? 1 : 0},
                   .rows = row_change::sum,
                   .optional = true});
    }

    run_parts<D, T>& run_;
    run_progress& progress_;
    tensor<double> hits_;
    const state_use use_;
    const bool old_names_;
    algorithm_state<D> algorithm_;
    staged_tensors<D> host_copies_;
    loss_scaler::state scale_;
    std::string activations_, kernels_, learned_;
    std::int64_t loader_epoch_ = 0, loader_batch_ = 0;
    epoch_numbers counted_;
    state_view view_;
};

}  // namespace cairn
