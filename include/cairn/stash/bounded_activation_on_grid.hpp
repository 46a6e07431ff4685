#pragma once
// bounded_codec's activations on a grid device, with the host's bytes (device/grid/packed_symbols.hpp):
// symbols and their sizes in one pass, bits in another. The host waits in between for the number of bytes. Workspace:
// one byte an element; a few words a block and a channel that wait beside the bytes count as workspace too.

#include <cairn/device/grid/packed_symbols.hpp>
#include <cairn/stash/bounded_activation.hpp>

namespace cairn::detail {

template <GridDevice D>
class bounded_activation<D> final : public packed_activation<D> {
public:
    bounded_activation(const tensor<float, D>& x, bounded_input<D> how)
        : packed_activation<D>(x.shape()),
          zeros_(std::move(how.zeros)),
          kinds_(std::move(how.kinds)),
          mask_bytes_(how.own_mask_bytes),
          quantiser_{how.random.bits(0), static_cast<std::uint32_t>(how.first_element)} {
        require(!how.huffman, "error-bounded codec: entropy coding is the host's; on ", D::name,
                " set huffman to false");
        if (how.moments.mean.size() == 0) {
            quantiser_.one = quantiser_steps::of(how.bounds, 0, 1);
        } else {
            quantiser_.channels = how.moments.mean.size();
            table_ = tensor<float, D>({5, quantiser_.channels}, memory_category::workspace);
            quantiser_.table = table_.data();
            for_indices(D{}, quantiser_.channels,
                        grid::quantiser_table{how.bounds, quantiser_.channels, how.moments.mean.data(),
                                              how.moments.deviation.data(), table_.data()});
        }
        const index_t n = x.size(), blocks = blocks_of(n);
        starts_ = tensor<std::uint8_t, D>({blocks * index_t{sizeof(grid::block_start)}}, memory_category::workspace);
        if (n == 0) return;
        tensor<std::uint8_t, D> symbols({blocks * grid::stored_block * index_t{sizeof(grid::stored_symbols)}},
                                        memory_category::workspace),
            sizes({blocks * index_t{sizeof(grid::stream_sizes)}}, memory_category::workspace),
            sums({index_t{sizeof(grid::sizes_of_all)}}, memory_category::workspace);
        auto* const of_blocks = reinterpret_cast<grid::stream_sizes*>(sizes.data());
        auto* const stored = reinterpret_cast<grid::stored_symbols*>(symbols.data());
        D::launch(size_of(n), grid::quantise_blocks{n, masks(), quantiser_, x.data(), stored, of_blocks});
        D::launch({.blocks = 1, .threads = grid::symbol_threads, .shared = 64},
                  grid::place_blocks{blocks, of_blocks, starts(), reinterpret_cast<grid::sizes_of_all*>(sums.data())});
        grid::sizes_of_all all;
        D::copy_to_host(&all, sums.data(), sizeof all);
        if (all.broken) fail_of_not_finite(x);
        require(all.bytes < std::uint64_t{1} << 32, "error-bounded codec: ", all.bytes,
                " bytes; 4 GiB is the most of one tensor");
        tensor<std::uint8_t, D> body({static_cast<index_t>(all.bytes)});
        D::launch(size_of(n), grid::write_planes{n, masks(), x.data(), stored, of_blocks, starts(), body.data()});
        this->body_ = waiting_bytes<D>(std::move(body));
    }

    index_t bytes() const override { return this->body().size() + mask_bytes_; }

    tensor<float, D> unpack() const override {
        tensor<float, D> x(this->shape_);
        const index_t n = x.size();
        if (n > 0)
            D::launch(size_of(n), grid::read_planes{n, masks(), quantiser_, starts(), this->body().data(), x.data()});
        return x;
    }

private:
    static index_t blocks_of(index_t n) { return (n + packed_block - 1) / packed_block; }
    static grid_size size_of(index_t n) {
        return {.blocks = blocks_of(n), .threads = grid::symbol_threads, .shared = sizeof(grid::shared_streams)};
    }
    grid::element_masks masks() const { return {zeros_.get().data(), kinds_.get().data()}; }
    grid::block_start* starts() const {
        return reinterpret_cast<grid::block_start*>(const_cast<std::uint8_t*>(starts_.data()));
    }

    waiting_bytes<D> zeros_, kinds_;
    index_t mask_bytes_;
    grid::element_quantiser quantiser_;
    tensor<float, D> table_;  // of channels; empty: all have the quantiser's one
    tensor<std::uint8_t, D> starts_;
};

}  // namespace cairn::detail
