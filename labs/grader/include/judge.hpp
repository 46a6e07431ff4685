#pragma once
// For the tests of a lab, which are a program of their own, the judge: it calls what a submission's adapter serves
// (worker.hpp), in other processes, one for each rank, and routes and counts their messages.
//   const double m = lab::call<double>("mean", x);
//   const auto ring = lab::on_ranks<std::vector<float>>(4, "ring", [&](int r) { return std::tuple(before[r]); });
//   ring.results[r], ring.sent[r].messages
// What a worker does wrong, such as an exception, a deadlock or its end, is thrown and fails the test with that text.

#include "lab.hpp"
#include "wire.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lab {

/// What one rank sent in a call. Nothing here can be changed by a submission: the judge counts.
struct sent {
    std::int64_t messages = 0, bytes = 0;
    /// The longest chain of dependent messages that ends at this rank: a message is one longer than what its sender had
    /// waited for before (Lamport's clock).
    std::int64_t rounds = 0;
    /// The rank's clock in the α-β model, computing not included: a transfer begins when both its ranks have asked for
    /// it, and takes α + β · bytes.
    double seconds = 0;
};

struct alpha_beta {
    double alpha = 0, beta = 0;
};

/// Something that a submission does wrong.
struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// The submission's function threw: `type` is "invalid_argument", "logic_error", …, worker_main.cpp has the list.
struct threw : fault {
    threw(std::string t, const std::string& text) : fault(text), type(std::move(t)) {}
    std::string type;
};

template <class R>
struct outcome {
    std::vector<std::conditional_t<std::is_void_v<R>, std::tuple<>, R>> results;  // [rank]
    std::vector<lab::sent> sent;
};

namespace detail {
struct replies {
    std::vector<bytes> results;
    std::vector<lab::sent> sent;
};
/// One call on arguments.size() ranks.
replies exchange(const std::string& name, const std::vector<bytes>& arguments, const alpha_beta& net);

template <class R>
R decoded(const bytes& from, const std::string& name) {
    try {
        reader in(from);
        if (in.get<int>() == 1) {
            auto type = in.get<std::string>();
            throw threw(std::move(type), in.get<std::string>());
        }
        if constexpr (std::is_void_v<R>)
            return in.end();
        else {
            R result = in.get<R>();
            in.end();
            return result;
        }
    } catch (const wire_error& error) {
        throw fault(name + ": the result cannot be read: " + error.what());
    }
}

using answer = std::function<bytes(reader&)>;
void set_answer(const std::string& name, answer f);

template <class F>
struct question : question<decltype(&F::operator())> {};
template <class F, class R, class... A>
struct question<R (F::*)(A...) const> {
    template <class G>
    static bytes apply(G& f, reader& in) {
        std::tuple<std::remove_cvref_t<A>...> all{in.get<std::remove_cvref_t<A>>()...};
        in.end();
        return writer().put(std::apply(f, std::move(all))).data;
    }
};
template <class F, class R, class... A>
struct question<R (F::*)(A...)> : question<R (F::*)(A...) const> {};
}  // namespace detail

/// Calls `name` on one rank.
template <class R, class... A>
R call(const std::string& name, const A&... arguments) {
    writer out;
    (out.put(arguments), ...);
    return detail::decoded<R>(detail::exchange(name, {out.data}, {}).results[0], name);
}

/// The type of the exception that the call throws; "nothing" where it throws none.
template <class... A>
std::string thrown(const std::string& name, const A&... arguments) {
    writer out;
    (out.put(arguments), ...);
    const auto replies = detail::exchange(name, {out.data}, {});
    reader in(replies.results[0]);
    return in.get<int>() == 1 ? in.get<std::string>() : "nothing";
}

/// Calls `name` on `ranks` ranks at once, with the arguments of_rank(rank), a tuple.
template <class R, class Arguments>
outcome<R> on_ranks(int ranks, const std::string& name, Arguments&& of_rank, const alpha_beta& net = {}) {
    std::vector<bytes> arguments;
    for (int r = 0; r < ranks; ++r) {
        writer out;
        std::apply([&](const auto&... one) { (out.put(one), ...); }, of_rank(r));
        arguments.push_back(std::move(out.data));
    }
    auto replies = detail::exchange(name, arguments, net);
    outcome<R> all;
    all.sent = std::move(replies.sent);
    for (const bytes& reply : replies.results) {
        try {
            if constexpr (std::is_void_v<R>)
                detail::decoded<R>(reply, name), all.results.emplace_back();
            else
                all.results.push_back(detail::decoded<R>(reply, name));
        } catch (const threw& error) {
            throw threw(error.type, name + ", rank " + std::to_string(all.results.size()) + " of " +
                                        std::to_string(ranks) + ": " + error.what());
        }
    }
    return all;
}

/// Answers what workers ask by this name, from now until the end of the test.
template <class F>
void answer(const std::string& name, F f) {
    detail::set_answer(name, [f](reader& in) mutable { return detail::question<F>::apply(f, in); });
}

/// The first rank whose result differs from rank 0's, in words, or nothing: for results that must be equal in every
/// bit.
template <class T>
std::string disagreement(const std::vector<std::vector<T>>& of_ranks) {
    for (std::size_t r = 1; r < of_ranks.size(); ++r) {
        const auto &a = of_ranks[0], &b = of_ranks[r];
        if (a.size() != b.size())
            return "ranks disagree: rank 0 has " + std::to_string(a.size()) + " elements, rank " + std::to_string(r) +
                   " has " + std::to_string(b.size());
        for (std::size_t i = 0; i < a.size(); ++i)
            if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0)
                return "ranks disagree: element " + std::to_string(i) + " is " + text(static_cast<double>(a[i])) +
                       " on rank 0 and " + text(static_cast<double>(b[i])) + " on rank " + std::to_string(r);
    }
    return {};
}

}  // namespace lab
