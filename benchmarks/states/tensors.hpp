#pragma once
// Whole tensors of a version, whatever mesh wrote it.

#include <cairn/core/bfloat16.hpp>
#include <cairn/state/saved_state.hpp>
#include <cairn/state/version.hpp>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace cairn::states {

/// f(T{}) for the type of the elements; texts are bytes.
template <class F>
decltype(auto) with_element_type(element_type type, F&& f) {
    switch (type) {
        case element_type::float32:
            return f(float{});
        case element_type::float64:
            return f(double{});
        case element_type::bfloat16:
            return f(bfloat16{});
        case element_type::int32:
            return f(std::int32_t{});
        case element_type::int64:
            return f(std::int64_t{});
        case element_type::uint32:
            return f(std::uint32_t{});
        case element_type::uint64:
            return f(std::uint64_t{});
        case element_type::uint8:
        case element_type::text:
            break;
    }
    return f(std::uint8_t{});
}

/// The tensors of one version; each is read, and checked, when it is asked for.
class version_tensors {
public:
    /// Throws where manifest or packs are damaged.
    explicit version_tensors(const std::filesystem::path& directory)
        : manifest_(read_manifest(directory)), saved_(saved_state::of_packs(directory, own_packs(manifest_))) {}

    const manifest& all() const { return manifest_; }

    /// Elements of a tensor in row-major order, or the bytes of a text. `mean_of_rows`: the mean over the first axis,
    /// that of ranks.
    std::vector<std::byte> read(const manifest::tensor& t, bool mean_of_rows = false) const {
        state_view view;
        const auto bytes_of = [](const void* from, std::size_t n) {
            std::vector<std::byte> bytes(n);
            if (n) std::memcpy(bytes.data(), from, n);
            return bytes;
        };
        if (t.type == element_type::text) {
            std::string text;
            view.add(t.name, text);
            saved_.load(view);
            return bytes_of(text.data(), text.size());
        }
        return with_element_type(t.type, [&](auto zero) {
            const shape extents = mean_of_rows ? row_of(t.extents) : t.extents;
            const tensor<decltype(zero)> whole(extents, memory_category::workspace);
            piece_info info;
            if (mean_of_rows) info = {.where = piece::whole(extents).in_row(0, 1), .rows = row_change::mean};
            view.add(t.name, whole, info);
            saved_.load(view);
            return bytes_of(whole.data(), static_cast<std::size_t>(whole.size()) * sizeof zero);
        });
    }

    /// Extents without the first axis.
    static shape row_of(const shape& extents) {
        shape row;
        for (int a = 1; a < extents.rank(); ++a) row.push_back(extents[a]);
        return row;
    }

private:
    manifest manifest_;
    saved_state saved_;
};

}  // namespace cairn::states
