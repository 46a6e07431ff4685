#pragma once
// Values that all ranks of a process have in common: made by the first that asks, and kept as long as one has them.
//   static kept_once<std::pair<index_t, int>, table> tables;
//   const std::shared_ptr<const table> mine = tables.get({n, 3}, [&] { return table(n, 3); });
// A simulation has thousands of ranks in one process, each of which would have its own otherwise.

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Any thread may ask; others wait for the one that makes a value.
template <class Key, class T>
class kept_once {
public:
    /// The value of `key`, which make() returns where nobody has it. make() may not communicate.
    template <class Make>
    std::shared_ptr<const T> get(const Key& key, Make&& make) {
        const std::scoped_lock lock(mutex_);
        std::erase_if(kept_, [](const auto& entry) { return entry.second.expired(); });
        for (const auto& [of, value] : kept_)
            if (of == key)
                if (auto found = value.lock()) return found;
        auto made = std::make_shared<const T>(make());
        kept_.emplace_back(key, made);
        return made;
    }

private:
    std::mutex mutex_;
    std::vector<std::pair<Key, std::weak_ptr<const T>>> kept_;
};

}  // namespace cairn
