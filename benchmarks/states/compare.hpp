#pragma once
// What differs between two versions, of any two meshes: digests first, which are in the manifests; then, where those
// differ, numbers.

#include "states/table.hpp"
#include "states/tensors.hpp"

#include <cairn/train/record.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace cairn::states {

/// How the elements of a tensor differ.
struct tensor_difference {
    std::string tensor, what;  // `what`: in words, where elements cannot be compared
    std::int64_t elements = 0, differ = 0;
    double largest = 0;       // |a − b|
    std::int64_t first = -1;  // element, in row-major order, that differs by more than the tolerance
    double first_a = 0, first_b = 0;
};

inline double number_at(const std::vector<std::byte>& bytes, element_type type, std::int64_t i) {
    return with_element_type(type, [&](auto zero) {
        std::memcpy(&zero, bytes.data() + static_cast<std::size_t>(i) * sizeof zero, sizeof zero);
        return static_cast<double>(zero);
    });
}

/// What comes first when the first difference is told: parameters, statistics, the optimizer, the rest.
inline int rank_of_name(const std::string& name) {
    const char* const order[] = {"model/", "buffers/", "optimizer/"};
    for (int i = 0; i < 3; ++i)
        if (name.starts_with(order[i])) return i;
    return 3;
}

/// Compares the elements of one tensor. Statistics of other numbers of ranks: their means.
inline tensor_difference compare_tensor(const version_tensors& a, const manifest::tensor& in_a,
                                        const version_tensors& b, const manifest::tensor& in_b, double tolerance) {
    tensor_difference d{.tensor = in_a.name};
    const auto kind = [](const manifest::tensor& t) {
        return concat(element_infos[static_cast<std::size_t>(t.type)].name, ' ', t.extents);
    };
    const bool means = in_a.extents != in_b.extents && in_a.name.starts_with("buffers/") && in_a.extents.rank() > 0 &&
                       version_tensors::row_of(in_a.extents) == version_tensors::row_of(in_b.extents);
    if (in_a.type != in_b.type || (in_a.extents != in_b.extents && !means)) {
        d.what = kind(in_a) + " and " + kind(in_b);
        return d;
    }
    const std::vector<std::byte> x = a.read(in_a, means), y = b.read(in_b, means);
    if (in_a.type == element_type::text) {
        d.what = x == y ? "" : "texts differ";
        return d;
    }
    const auto each = element_infos[static_cast<std::size_t>(in_a.type)].bytes;
    d.elements = static_cast<std::int64_t>(x.size() / each);
    for (std::int64_t i = 0; i < d.elements; ++i) {
        const double p = number_at(x, in_a.type, i), q = number_at(y, in_a.type, i);
        if (p == q || (std::isnan(p) && std::isnan(q))) continue;
        const double by = std::abs(p - q);
        if (!(by <= d.largest)) d.largest = by;
        if (by <= tolerance) continue;
        if (d.differ++ == 0) d.first = i, d.first_a = p, d.first_b = q;
    }
    if (std::isnan(d.largest)) d.largest = INFINITY;
    return d;
}

/// See the top of the file.
struct comparison {
    std::int64_t equal = 0;  // tensors of one digest, or within the tolerance
    std::vector<std::string> only_a, only_b;
    std::vector<tensor_difference> differences;

    bool same() const { return only_a.empty() && only_b.empty() && differences.empty(); }
};

inline comparison compare_versions(const version_tensors& a, const version_tensors& b, double tolerance) {
    std::map<std::string, const manifest::tensor*> in_b;
    for (const manifest::tensor& t : b.all().tensors)
        if (!t.name.starts_with("machine/")) in_b[t.name] = &t;
    std::vector<const manifest::tensor*> in_a;
    for (const manifest::tensor& t : a.all().tensors)
        if (!t.name.starts_with("machine/")) in_a.push_back(&t);
    std::stable_sort(in_a.begin(), in_a.end(),
                     [](const auto* x, const auto* y) { return rank_of_name(x->name) < rank_of_name(y->name); });
    comparison c;
    for (const manifest::tensor* t : in_a) {
        const auto other = in_b.find(t->name);
        if (other == in_b.end()) {
            c.only_a.push_back(t->name);
            continue;
        }
        const manifest::tensor& u = *other->second;
        in_b.erase(other);
        if (t->type == u.type && t->extents == u.extents && t->digest == u.digest) {
            ++c.equal;
            continue;
        }
        tensor_difference d = compare_tensor(a, *t, b, u, tolerance);
        if (d.differ == 0 && d.what.empty())
            ++c.equal;
        else
            c.differences.push_back(std::move(d));
    }
    for (const auto& [name, t] : in_b) c.only_b.push_back(name);
    return c;
}

inline void print_comparison(const comparison& c, bool json) {
    if (json) {
        nlohmann::json all = nlohmann::json::array();
        for (const tensor_difference& d : c.differences) {
            nlohmann::json& one = all.emplace_back(nlohmann::json{{"tensor", d.tensor}, {"what", d.what}});
            if (d.what.empty())
                one.update({{"elements", d.elements},
                            {"differ", d.differ},
                            {"largest", d.largest},
                            {"first", d.first},
                            {"a", d.first_a},
                            {"b", d.first_b}});
        }
        std::cout << nlohmann::json{{"same", c.same()},
                                    {"equal", c.equal},
                                    {"only_a", c.only_a},
                                    {"only_b", c.only_b},
                                    {"differ", all}}
                         .dump(1)
                  << '\n';
        return;
    }
    std::cout << c.equal << " tensors are equal, " << c.differences.size() << " differ, " << c.only_a.size()
              << " are in A alone, " << c.only_b.size() << " in B alone\n";
    if (!c.differences.empty()) {
        const tensor_difference& d = c.differences.front();
        std::cout << "the first: " << printable(d.tensor);
        if (d.what.empty())
            std::cout << print(", element %lld: %.9g in A, %.9g in B\n", static_cast<long long>(d.first), d.first_a,
                               d.first_b);
        else
            std::cout << ": " << d.what << '\n';
    }
    table t{{"tensor", "elements", "differ", "largest", "what"}, {}};
    for (const tensor_difference& d : c.differences)
        d.what.empty() ? t.rows.push_back({d.tensor, d.elements, d.differ, d.largest, nullptr})
                       : t.rows.push_back({d.tensor, nullptr, nullptr, nullptr, d.what});
    if (!t.rows.empty()) print_table(without_empty_columns(t), false);
    for (const std::string& name : c.only_a) std::cout << "in A alone: " << printable(name) << '\n';
    for (const std::string& name : c.only_b) std::cout << "in B alone: " << printable(name) << '\n';
}

}  // namespace cairn::states
