#pragma once
// For adapters: what a lab lets the judge call. An adapter and a submission make a program of their own, the worker,
// one for each rank; the judge, which has the tests, is another program. Between them are two pipes.
//   const bool served[] = {
//       lab::serve("mean", [](std::vector<float> x) { return student::mean(x); }),
//       lab::serve("ring", [](lab::communicator& c, std::vector<float> x) { student::ring(c, x); return x; }),
//   };
// Arguments and results are values that wire.hpp can write; a `lab::communicator&` is this rank's. Exceptions become
// the reply "it threw".

#include "wire.hpp"

#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lab {

/// Messages to the other ranks, through the judge, who counts them. Satisfies cairn::Communicator. A send is complete
/// when its receiver has asked for it.
class communicator {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            cancel();
            number_ = std::exchange(other.number_, 0);
            room_ = other.room_;
            return *this;
        }
        ~request() { cancel(); }
        void wait();
        bool test();

    private:
        friend class communicator;
        request(std::uint32_t number, std::span<std::byte> room) : number_(number), room_(room) {}
        void cancel() noexcept;

        std::uint32_t number_ = 0;  // 0: complete
        std::span<std::byte> room_;
    };

    /// `members`: numbers that the judge has for the ranks of this communicator.
    communicator(std::uint32_t context, std::vector<int> members, int rank)
        : context_(context), members_(std::move(members)), rank_(rank) {}

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(members_.size()); }
    std::string name() const { return "judge"; }
    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag);
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag);
    [[nodiscard]] communicator split(int colour, int key);

    /// Told at the start of a collective, for the message of a rank that waits for ever.
    template <class Call>
    [[nodiscard]] auto enter(const Call& call) {
        return scope(std::string(call.name));
    }

private:
    struct scope {
        explicit scope(const std::string& name);
        ~scope();
        scope(const scope&) = delete;
        scope& operator=(const scope&) = delete;
    };
    int member(int peer, int tag) const;

    std::uint32_t context_;
    std::vector<int> members_;
    int rank_;
};

namespace detail {
using handler = std::function<void(reader&, writer&, communicator&)>;
bool serve(std::string name, handler f);
bytes ask(bytes question);

template <class F>
struct signature : signature<decltype(&F::operator())> {};
template <class F, class R, class... A>
struct signature<R (F::*)(A...) const> {
    using result = R;
    /// The arguments of a call, decoded in their order.
    template <class G>
    static R apply(G& f, reader& in, communicator& c) {
        std::tuple<argument<A>...> all{get<A>(in, c)...};
        in.end();
        return std::apply(f, std::move(all));
    }
    template <class T>
    using argument = std::conditional_t<std::is_same_v<T, communicator&>, communicator&, std::remove_cvref_t<T>>;
    template <class T>
    static argument<T> get(reader& in, communicator& c) {
        if constexpr (std::is_same_v<T, communicator&>)
            return (void)in, c;
        else
            return (void)c, in.get<std::remove_cvref_t<T>>();
    }
};
template <class F, class R, class... A>
struct signature<R (F::*)(A...)> : signature<R (F::*)(A...) const> {};
}  // namespace detail

/// Lets the judge call f by this name.
template <class F>
bool serve(std::string name, F f) {
    return detail::serve(std::move(name), [f](reader& in, writer& out, communicator& c) mutable {
        using of = detail::signature<F>;
        if constexpr (std::is_void_v<typename of::result>)
            of::apply(f, in, c);
        else
            out.put(of::apply(f, in, c));
    });
}

/// A question that the judge answers during a call: the value of a function that only the judge knows.
template <class R, class... A>
R ask(const std::string& name, const A&... arguments) {
    writer out;
    out.put(name), (out.put(arguments), ...);
    const bytes answer = detail::ask(std::move(out.data));
    return reader(answer).get<R>();
}

}  // namespace lab
