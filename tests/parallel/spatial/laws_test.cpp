#include "catch.hpp"
#include "nn/layer_laws.hpp"

#include <cairn/parallel/spatial/parts.hpp>

#include <algorithm>
#include <map>

namespace spatial_laws {

using namespace cairn;
using cairn::index_t;

// Rank 0 of several, whose neighbours say nothing but zeros: what is left is a layer by itself, with zeros for borrowed
// rows, and all laws of layers hold for it.
class quiet_communicator {
public:
    struct request {
        request() = default;
        request(request&&) = default;
        request& operator=(request&&) = default;
        void wait() {}
        bool test() { return true; }
    };

    explicit quiet_communicator(int size) : size_(size) {}
    int rank() const { return 0; }
    int size() const { return size_; }
    std::string name() const { return "quiet"; }
    request isend(std::span<const std::byte>, int, int) { return {}; }
    request irecv(std::span<std::byte> room, int, int) {
        std::ranges::fill(room, std::byte{0});
        return {};
    }
    quiet_communicator split(int, int) { return quiet_communicator(size_); }

private:
    int size_;
};

// All laws but "peak": extended tensors come and go within a pass, which no other layer's do.
void check(const std::string& name, const rank_grid& grid, const shape& whole, auto make) {
    quiet_communicator world(grid.size());
    channel over(world);
    const auto cut = spatial_partition::even(grid, {whole[1], whole[2]}, "test");
    laws::law_case c =
        laws::make_case(name, cut.tensor_shape(grid, 0, whole[0], whole.back()), [&](auto t) -> any_layer<decltype(t)> {
            spatial_parts<quiet_communicator, decltype(t)> parts(over, grid, {whole[1], whole[2]});
            return make(parts);
        });
    c.wrong = c.in.with(1, c.in[1] + 1);
    cairn::autotune_cache::global().set_policy(cairn::autotune_policy::first);
    INFO(name << " over " << grid.text());
    laws::numerical_gradient(c);
    laws::split_is_joint<double>(c, c.make64());
    laws::repeatable(c);
    laws::accumulates(c);
    laws::narrow_is_double<float>(c, c.make32());
    laws::narrow_is_double<bfloat16>(c, c.make16());
    laws::memory_is_as_costed<float>(c, c.make32());
    laws::work_is_as_costed<float>(c, c.make32());
    laws::work_is_as_costed<bfloat16>(c, c.make16());
    laws::shapes_are_checked(c);
    laws::threads_do_not_matter<float>(c, c.make32());
    laws::aliases_are_safe(c);
    laws::discarding_changes_nothing(c);
    laws::empty_batch(c);
}

}  // namespace spatial_laws

TEST_CASE("spatial: layers satisfy the laws of layers", "[parallel][spatial][law]") {
    using namespace spatial_laws;
    for (const auto& extents : std::vector<std::vector<int>>{{1, 1}, {2, 1}, {2, 2}}) {
        const rank_grid grid(extents);
        const shape whole{4, 9, 7, 3};
        check("conv", grid, whole, [](auto& parts) {
            return parts.conv({.in = 3, .out = 2, .kernel = {3, 2}, .pad = 1, .dims = 2});
        });
        check("max_pool", grid, whole,
              [](auto& parts) { return parts.pool({.kernel = 3, .stride = per_axis(2), .pad = 1, .dims = 2}); });
        check("average_pool", grid, whole, [](auto& parts) {
            return parts.average_pool(
                {.kernel = 3, .stride = per_axis(2), .pad = 1, .count_include_pad = false, .dims = 2});
        });
        check("dropout", grid, whole, [](auto& parts) { return parts.dropout(0.4); });
        check("global_average_pool", grid, whole, [](auto& parts) { return parts.global_average_pool(); });
        check("flatten", grid, whole, [](auto& parts) { return parts.flatten(); });
    }
}

TEST_CASE("spatial: an average over what lies inside is rounded once in bfloat16", "[parallel][spatial]") {
    using namespace spatial_laws;
    quiet_communicator world(2);
    channel over(world);
    spatial_parts<quiet_communicator, bfloat16> parts(over, rank_grid({2, 1}), {4, 4});
    auto pool = parts.average_pool({.kernel = 3, .stride = 2, .pad = 1, .count_include_pad = false});
    auto x = tensor<bfloat16>::filled({1, 2, 4, 1}, bfloat16(1.0f));
    x[5] = bfloat16(2.0f);
    saved_tensors<bfloat16> saved;
    const tensor<bfloat16> y = pool.forward(std::move(x), saved, {.mode = mode::evaluate});
    CHECK(static_cast<float>(y[0]) == 1.25f);  // of 1, 1, 1 and 2
}
