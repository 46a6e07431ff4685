#pragma once
// The free stretches of a range of addresses, for a pool: best fit, lowest address first; neighbours merge.

#include <cairn/core/shape.hpp>

#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cairn {

/// A stretch of a pool's addresses.
struct memory_range {
    char* begin;
    index_t bytes;
};

/// See the top of the file. Not thread safe.
class free_ranges {
public:
    /// The free range that `size` bytes go into, at `at` where that is given; without bytes: none has room.
    memory_range with_room(index_t size, const char* at = nullptr) const {
        if (!at) {
            const auto fit = by_size_.lower_bound({size, nullptr});
            return fit == by_size_.end() ? memory_range{} : memory_range{fit->second, fit->first};
        }
        const auto next = by_address_.upper_bound(const_cast<char*>(at));
        if (next == by_address_.begin()) return {};
        const memory_range before{std::prev(next)->first, std::prev(next)->second};
        return at + size > before.begin + before.bytes ? memory_range{} : before;
    }

    /// [at, at + size) of the free range `from` is free no longer.
    void take(memory_range from, char* at, index_t size) {
        char *const end = at + size, *const free_end = from.begin + from.bytes;
        erase(from);
        if (at > from.begin) insert({from.begin, at - from.begin});
        if (free_end > end) insert({end, free_end - end});
    }

    /// `r` is free from now on, one range with its free neighbours.
    void give(memory_range r) {
        auto next = by_address_.lower_bound(r.begin);
        if (next != by_address_.end() && next->first == r.begin + r.bytes) {
            const memory_range behind{next->first, next->second};
            erase(behind);
            r.bytes += behind.bytes;
        }
        next = by_address_.lower_bound(r.begin);
        if (next != by_address_.begin()) {
            const memory_range before{std::prev(next)->first, std::prev(next)->second};
            if (before.begin + before.bytes == r.begin) {
                erase(before);
                r = {before.begin, before.bytes + r.bytes};
            }
        }
        insert(r);
    }

    /// A range beside the others, not merged with them.
    void insert(memory_range r) {
        by_address_.emplace(r.begin, r.bytes);
        by_size_.emplace(r.bytes, r.begin);
    }

    /// By address.
    std::vector<memory_range> all() const {
        std::vector<memory_range> list;
        for (const auto& [start, bytes] : by_address_) list.push_back({start, bytes});
        return list;
    }

private:
    void erase(memory_range r) {
        by_address_.erase(r.begin);
        by_size_.erase({r.bytes, r.begin});
    }

    std::map<char*, index_t> by_address_;
    std::set<std::pair<index_t, char*>> by_size_;
};

}  // namespace cairn
