#pragma once
// K-FAC on ranks with a device each. The split of the work is COMM-OPT's (optim/precondition/placement.hpp): statistics are added over the ranks,
// each decomposition is made by one rank and sent to all, and every rank preconditions everything. Other splits: kfac_ranks.hpp, on the host.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/parallel/kfac_together.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Communicator C, class T, Device D>
class kfac_device_ranks final : public kfac_roles<T, D> {
public:
    using blocks = std::vector<kfac_block<T, D>>;

    /// `tensors_over` carries tensors of D between the same ranks as `world`. Both must outlive this, and are used when nobody else uses them.
    kfac_device_ranks(C& world, C& tensors_over, kfac_form form)
        : world_(world), tensors_over_(tensors_over), form_(form) {}

    void start(blocks& all) override {
        agree_on_layers(world_, all);
        std::vector<factor_sizes> sizes;
        for (const kfac_block<T, D>& b : all) sizes.push_back(b.sizes());
        place_.emplace(world_.size(), sizes);
    }

    bool decomposes(std::size_t i, char side) const override { return place_->worker(i, side) == world_.rank(); }

    void finish_sums(blocks& all) override {
        std::vector<double> rows;
        for (const kfac_block<T, D>& b : all) rows.push_back(static_cast<double>(b.rows));
        all_reduce(world_, std::span<double>(rows));
        std::vector<tensor<T, D>*> sums;
        for (std::size_t i = 0; i < all.size(); ++i) {
            all[i].rows = static_cast<index>(rows[i]);
            if (all[i].rows > 0)
                all[i].each_factor([&](kfac_factor<T, D>& f, char) { sums.push_back(&f.statistics.batch()); });
        }
        add_over_ranks(sums);
    }

    /// Averages and decompositions in use are everywhere; those of later use are not.
    void collect(blocks& all, bool pending) override {
        if (!pending || !place_) return;
        std::vector<double> made;
        for (kfac_block<T, D>& b : all)
            b.each_factor([&](kfac_factor<T, D>& f, char) { made.push_back(f.pending.empty() ? 0 : 1); });
        all_reduce(world_, std::span<double>(made), {.op = reduction::max});
        std::size_t at = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](kfac_factor<T, D>& f, char side) {
                if (made[at++] > 0) send(f.statistics, f.pending, place_->worker(i, side));
            });
    }

    void share_decompositions(blocks& all, std::vector<bool>& fresh, const std::string& failure) override {
        wait_for_decompositions(world_, all);
        for (const std::string& why : all_gather_text(world_, failure))
            if (!why.empty()) fail(why);
        std::vector<double> made(fresh.begin(), fresh.end());
        all_reduce(world_, std::span<double>(made), {.op = reduction::max});
        std::size_t at = 0;
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i].each_factor([&](kfac_factor<T, D>& f, char side) {
                fresh[at] = made[at] > 0;
                if (fresh[at++]) send(f.statistics, f.inverse, place_->worker(i, side));
            });
    }

private:
    // Packed, because a message each would be many small ones.
    void add_over_ranks(const std::vector<tensor<T, D>*>& sums) {
        constexpr index most = index{1} << 24;  // numbers in a message of several tensors
        for (std::size_t first = 0, last = 0; first < sums.size(); first = last) {
            index count = 0;
            while (last < sums.size() && (last == first || count + sums[last]->size() <= most))
                count += sums[last++]->size();
            tensor<T, D> packed({count}, category::communication);
            const auto each = [&](auto copy) {
                index at = 0;
                for (std::size_t i = first; i < last; at += sums[i++]->size())
                    copy(packed.data() + at, sums[i]->data(), sums[i]->bytes());
            };
            each([](T* there, T* sum, index bytes) { D::copy_within(there, sum, bytes); });
            all_reduce(tensors_over_, packed.span());
            each([](T* there, T* sum, index bytes) { D::copy_within(sum, there, bytes); });
        }
    }

    void send(const running_factor<T, D>& of, decomposition<T, D>& d, int from) {
        const index n = of.size();
        const auto share = [&](tensor<T, D>& t, const shape& s) {
            if (t.empty()) t = tensor<T, D>(s, category::optimizer);
            broadcast(tensors_over_, t.span(), from);
        };
        if (!of.is_diagonal()) share(d.matrix, {n, n});
        if (of.is_diagonal() || form_ == kfac_form::eigen) share(d.values, {n});
    }

    C &world_, &tensors_over_;
    kfac_form form_;
    std::optional<placement> place_;
};

}  // namespace cairn
