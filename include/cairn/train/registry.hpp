#pragma once
// Registries of the names in workload files, one for each concept (data formats, networks, optimizers, compressors,
// schedules of the learning rate). A header enters its own names, so a program knows those that it includes:
//   struct lion_entry {
//       static constexpr const char* name = "lion";
//       static lion make(configuration& settings) { … }           what a concept asks for is at its register_…
//   };
//   static const register_optimizer<lion_entry, CAIRN_TARGETS> lion_is_known;
// Entries that depend on the device, or on the layers' type, are compiled and entered for each target of the program's
// file: CAIRN_TARGETS, the host unless the file defines more before its first include. A program in several files
// compiles each concept in one of them, the others define it as cairn::entered_elsewhere.

#include <cairn/core/error.hpp>
#include <cairn/core/memory.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/train/settings.hpp>

#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#ifndef CAIRN_TARGETS
#define CAIRN_TARGETS cairn::target<cairn::cpu, float>
#endif

namespace cairn {

/// A network on D, whose layers compute in T.
template <Device D, class T>
struct target {
    using device = D;
    using number = T;
};

/// In place of targets: another file of the program enters what this file's headers bring.
struct entered_elsewhere {};

/// The makers of one concept by name, in the order in which they were entered.
template <class Maker>
class registry {
public:
    static registry& global() {
        static registry all;
        return all;
    }

    /// `by`: the type that brings it, which several files of a program may enter.
    void add(const std::string& name, std::type_index by, Maker maker) {
        for (const entry& e : entries_)
            if (e.name == name && e.by == by) return;
        entries_.push_back({name, by, std::move(maker)});
    }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const entry& e : entries_) all.push_back(e.name);
        return all;
    }

    bool contains(const std::string& name) const { return find(name) != nullptr; }

    /// Throws naming the nearest of those that are known, or two that have the same name.
    const Maker& at(const std::string& setting, const std::string& name) const {
        const entry* const found = find(name);
        if (!found) fail_unknown(setting, name, names());
        for (const entry& e : entries_)
            require(e.name != name || &e == found, setting, ": two headers of this program enter a '", name,
                    "'; give one of them another name");
        return found->maker;
    }

private:
    struct entry {
        std::string name;
        std::type_index by;
        Maker maker;
    };

    const entry* find(const std::string& name) const {
        for (const entry& e : entries_)
            if (e.name == name) return &e;
        return nullptr;
    }

    std::vector<entry> entries_;
};

}  // namespace cairn
