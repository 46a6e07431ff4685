#pragma once
// A saved state to read from: the pieces of all packs of a version, or the entries of one file (state_file.hpp). A rank
// reads the pieces that overlap what it needs, checks each, and copies runs: any mesh reads what any other has written,
// and no rank has more than its own and one piece.

#include <cairn/state/checksum.hpp>
#include <cairn/state/pack_file.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
class saved_state {
public:
    /// Of packs in `directory`, which may refer to earlier ones beside them. Throws where one is absent or damaged.
    static saved_state of_packs(const std::filesystem::path& directory, const std::vector<std::string>& files) {
        saved_state s(directory.string());
        for (const std::string& name : files) {
            const pack_directory d = read_pack_directory(directory / name);
            for (const packed_piece& p : d.pieces)
                s.pieces_.push_back({p, s.open(directory / d.id.file_of(p.holder)), false});
        }
        return s;
    }
    /// Of one file of whole tensors. Compressors' tensors of ranks, "compression/rank2/…", are rows of one.
    static saved_state of_file(const std::filesystem::path& path) {
        saved_state s(path.string());
        const std::vector<stored_entry> entries = detail::read_directory(*s.open(path));
        index_t ranks = 0;
        for (const stored_entry& e : entries)
            if (const auto [rank, rest] = of_rank(e.name); rank >= 0) ranks = std::max(ranks, rank + 1);
        for (const stored_entry& e : entries) {
            packed_piece p;
            p.name = e.name, p.type = e.type, p.where = piece::whole(e.shape);
            if (e.name.starts_with("buffers/")) p.where = p.where.in_row(0, 1);  // the mean over the ranks
            if (const auto [rank, rest] = of_rank(e.name); rank >= 0) {
                p.name = concat("compression/", rest);
                p.where = p.where.in_row(rank, ranks);
            }
            p.position = p.zeros_from = e.position, p.bytes = e.bytes, p.checksum = e.checksum;
            s.pieces_.push_back({p, s.open(path), true});
        }
        return s;
    }

    const std::string& name() const { return name_; }
    bool has(std::string_view entry) const {
        return std::ranges::any_of(pieces_, [&](const stored& s) { return s.p.name == entry; });
    }
    /// Names of all entries.
    std::set<std::string> entries() const {
        std::set<std::string> all;
        for (const stored& s : pieces_) all.insert(s.p.name);
        return all;
    }
    std::uint64_t bytes() const {
        std::uint64_t sum = 0;
        for (const stored& s : pieces_) sum += s.p.bytes;
        return sum;
    }

    /// Differences of names, types and shapes between what is here and what `state` needs, in words; "" where it can be
    /// loaded.
    std::string differences(const state_view& state) const {
        std::map<std::string, const packed_piece*> stored_by_name;
        for (const stored& s : pieces_) stored_by_name.try_emplace(s.p.name, &s.p);
        state_differences all;
        for (const auto& e : state.entries()) {
            const auto found = stored_by_name.find(e.name);
            if (found == stored_by_name.end()) {
                if (!e.optional) all.add(e.name, " (", type_text(e.type, e.where.global), ") is not there");
                continue;
            }
            const packed_piece& p = *found->second;
            const bool rows_differ = e.rows != row_change::refused && same_rows(p.where.global, e.where.global);
            if (p.type != e.type || (p.where.global != e.where.global && !rows_differ))
                all.add(e.name, " is ", type_text(p.type, p.where.global), " there, ",
                        type_text(e.type, e.where.global), " in the program");
        }
        return all.text();
    }

    /// Whether what is stored by the entry's name, which has() it, is of its type and shape.
    bool fits(const state_view::entry& e) const {
        state_view one;
        one.add(e);
        return differences(one).empty();
    }

    /// Fills all entries of `state`, bit by bit. Throws where something differs, is missing or damaged, naming it;
    /// some entries may have been filled then.
    void load(const state_view& state) const {
        const std::string why_not = differences(state);
        require(why_not.empty(), name_, ": saved by another model or set-up: ", why_not);
        std::map<std::string_view, std::vector<destination>> needed;
        for (const auto& e : state.entries()) needed[e.name].emplace_back(e);
        std::vector<std::byte> room;
        for (const stored& s : pieces_) {
            const auto found = needed.find(s.p.name);
            if (found == needed.end()) continue;
            bool is_read = false;
            for (destination& d : found->second) {
                if (s.p.type == element_type::text) {
                    d.e->text().resize(s.p.bytes);
                    read(s, d.e->text().data());
                    continue;
                }
                d.prepare(s.p.where.global);
                for (target& t : d.targets) {
                    if (shared_elements(s.p.where, t.where) == 0) continue;
                    if (!std::exchange(is_read, true)) {
                        require(s.p.bytes <= s.file->size(), s.file->name(), ": truncated: ", s.p.name, " is of ",
                                s.p.bytes, " bytes");
                        room.resize(s.p.bytes);
                        read(s, room.data());
                    }
                    t.filled += copy_shared(s.p.where, room.data(), t.where, t.data, d.e->element_bytes());
                }
            }
        }
        for (auto& [name, all] : needed)
            for (destination& d : all) {
                if (d.e->type == element_type::text || (d.e->optional && !has(name))) continue;
                for (const target& t : d.targets)
                    require(t.filled == t.where.count, name_, ": ", name, ": ", t.where.count - t.filled, " of ",
                            t.where.count, " elements of ", t.where, " are not there");
                d.combine();
            }
    }

private:
    struct stored {
        packed_piece p;
        std::shared_ptr<detail::state_reader> file;
        bool of_file;  // with a CRC-32C
    };
    struct target {
        piece where;
        void* data;
        index_t filled = 0;
        std::vector<std::byte> room = {};  // of a row that is to be combined with others
    };
    // An entry; where the stored tensor has another number of rows, a target for each of them.
    struct destination {
        const state_view::entry* e;
        std::vector<target> targets;

        explicit destination(const state_view::entry& entry) : e(&entry), targets{{entry.where, entry.data}} {}

        void prepare(const shape& global) {
            if (targets.front().where.global == global) return;
            require(e->type == element_type::float32 || e->type == element_type::float64, "state: ", e->name,
                    ": rows of float32 and float64 alone can be combined");
            targets.clear();
            for (index_t r = 0; r < global[0]; ++r) {
                piece row = e->where;
                row.global = global;
                row.begin[0] = r;
                targets.push_back({row, nullptr, 0, std::vector<std::byte>(e->bytes())});
                targets.back().data = targets.back().room.data();
            }
        }
        // In the order of rows: the same bits on every rank.
        void combine() const {
            if (targets.front().where == e->where) return;
            e->type == element_type::float32 ? combine_as<float>() : combine_as<double>();
        }
        template <class T>
        void combine_as() const {
            const auto parts = static_cast<double>(e->rows == row_change::mean ? targets.size() : rows_here());
            for (std::size_t i = 0; i < static_cast<std::size_t>(e->where.count); ++i) {
                double sum = 0;
                for (const target& t : targets) {
                    T one;
                    std::memcpy(&one, t.room.data() + i * sizeof one, sizeof one);
                    sum += static_cast<double>(one);
                }
                static_cast<T*>(e->data)[i] = static_cast<T>(sum / parts);
            }
        }
        std::size_t rows_here() const { return static_cast<std::size_t>(e->where.global[0]); }
    };

    explicit saved_state(std::string name) : name_(std::move(name)) {}

    std::shared_ptr<detail::state_reader> open(const std::filesystem::path& path) {
        auto& file = files_[path.string()];
        if (!file) file = std::make_shared<detail::state_reader>(path);
        return file;
    }

    // "compression/rank2/bucket0/residual" → (2, "bucket0/residual"); −1 where it is not of a rank.
    static std::pair<index_t, std::string> of_rank(const std::string& name) {
        constexpr std::string_view front = "compression/rank";
        const auto slash = name.find('/', front.size());
        if (!name.starts_with(front) || slash == std::string::npos || slash == front.size()) return {-1, ""};
        const std::string digits = name.substr(front.size(), slash - front.size());
        if (digits.find_first_not_of("0123456789") != std::string::npos || digits.size() > 9) return {-1, ""};
        return {std::stoll(digits), name.substr(slash + 1)};
    }

    // Whether two shapes differ in the number of rows alone.
    static bool same_rows(const shape& a, const shape& b) {
        return a.rank() == b.rank() && a.rank() > 0 && a[0] > 0 && a.with(0, b[0]) == b;
    }

    void read(const stored& s, void* to) const {
        if (!s.of_file) return read_piece(*s.file, s.p, to);
        s.file->read(s.p.position, to, s.p.bytes, s.p.name);
        require(crc32c(to, s.p.bytes) == s.p.checksum, s.file->name(), ": entry ", s.p.name, ", bytes ", s.p.position,
                " to ", s.p.position + s.p.bytes, ": the checksum is wrong: corrupt file");
    }

    std::string name_;
    std::vector<stored> pieces_;
    std::map<std::string, std::shared_ptr<detail::state_reader>> files_;
};

}  // namespace cairn
