#pragma once
// What layers remember of a running text (Dai et al. 2019, Transformer-XL, section 3.2): of each row of the batch the
// last `length` inputs of a layer, (rows, length, width). A step reads the memory as the segment before left it and
// writes the next one beside it, so that a forward that is repeated reads the same; advance() makes that the memory.
// No gradient goes into it. It belongs to the run, not to the layers: evaluation has its own, longer one.

#include <cairn/core/range.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/layer.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace cairn {

/// See the top of the file. Elements are of the type of the weights, so that they are saved as they are.
template <class S = float, Device D = cpu>
class stream_memory final : public segment_memory {
public:
    /// `rows`: those of the whole batch that are here.
    stream_memory(index_t length, range rows) : length_(length), rows_(rows) {
        require(length >= 0 && rows.count >= 0, "a memory of ", length, " positions for ", rows.count, " rows");
    }

    index_t length() const { return length_; }
    range rows() const { return rows_; }
    /// Positions that hold something, the last ones. Saved with the tensors.
    std::int64_t& known() { return known_; }

    /// The tensor of layer `name`; made, of zeros, where there is none.
    tensor<S, D>& of(const std::string& name, index_t width) { return layer(name, width).now; }
    /// f(name, tensor) for each layer.
    template <class F>
    void for_layers(F&& f) {
        for (auto& [name, l] : layers_) f(name, l.now);
    }

    /// (batch, length + L, width): the memory of the rows of this pass, then their segment x (batch, L, width).
    template <class T>
    tensor<T, D> before(const tensor<T, D>& x, const std::string& name, const pass_context& p) {
        const index_t batch = x.extent(0), segment = x.extent(1) * x.extent(2), old = length_ * x.extent(2);
        tensor<T, D> all(x.shape().with(1, length_ + x.extent(1)), memory_category::workspace);
        const tensor<T, D> memory = cast<T>(rows_of(layer(name, x.extent(2)).now, batch, p));
        copy_columns(D{}, batch, old, memory.data(), old, all.data(), old + segment);
        copy_columns(D{}, batch, segment, x.data(), segment, all.data() + old, old + segment);
        return all;
    }

    /// The next memory of these rows: the last positions of what before() gave.
    template <class T>
    void remember(const tensor<T, D>& all, const std::string& name, const pass_context& p) {
        const index_t batch = all.extent(0), width = all.extent(2), old = length_ * width, row = all.extent(1) * width;
        tensor<T, D> last({batch, length_, width}, memory_category::workspace);
        copy_columns(D{}, batch, old, all.data() + row - old, row, last.data(), old);
        tensor<S, D> next = rows_of(layer(name, width).next, batch, p);
        D::copy_within(next.data(), cast<S>(last).data(), next.bytes());
    }

    /// A segment of so many positions is over.
    void advance(index_t positions) {
        for (auto& [name, l] : layers_) std::swap(l.now, l.next);
        known_ = std::min<std::int64_t>(length_, known_ + positions);
    }

    /// Nothing came before.
    void clear() {
        known_ = 0;
        for (auto& [name, l] : layers_) set_to_zero(D{}, l.now);
    }

private:
    struct of_layer {
        tensor<S, D> now, next;
    };

    of_layer& layer(const std::string& name, index_t width) {
        auto at = layers_.find(name);
        if (at == layers_.end()) {
            const auto zeros = [&] {
                return tensor<S, D>::zeros({rows_.count, length_, width}, memory_category::data);
            };
            at = layers_.emplace(name, of_layer{zeros(), zeros()}).first;
        }
        return at->second;
    }
    tensor<S, D> rows_of(const tensor<S, D>& t, index_t batch, const pass_context& p) const {
        const index_t first = p.random.first_sample - rows_.begin;
        require(first >= 0 && first + batch <= rows_.count, "a pass of rows ", p.random.first_sample, " to ",
                p.random.first_sample + batch, " of a stream; here are rows ", rows_.begin, " to ", rows_.end());
        return t.slice(first * length_ * t.extent(2), t.shape().with(0, batch));
    }

    index_t length_;
    range rows_;
    std::int64_t known_ = 0;
    std::map<std::string, of_layer> layers_;
};

}  // namespace cairn
