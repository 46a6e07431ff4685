#pragma once
// Values as bytes, between the judge and a worker. Both sides name the type; a value of another type, or bytes that do
// not suffice, are an error that says so. Nothing is allocated before the bytes are known to be there.
//   arithmetic types, std::byte, strings, vectors (nested too), spans (written only), pairs, tuples
//   enumerations with lab::names, as their names       template <> struct lab::names<E> {
//                                                              static constexpr std::pair<E, const char*> all[]{…}; };
//   structs with lab::members, as tuples                   template <> struct lab::members<S> {
//                                                             static auto of(auto& s) { return std::tie(s.a, s.b); } };

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ranges>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace lab {

template <class E>
struct names;
template <class S>
struct members;

using bytes = std::vector<std::byte>;

struct wire_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {
template <class T>
concept Packed = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) || std::is_same_v<T, std::byte>;
template <class T>
concept Named = std::is_enum_v<T> && requires {
    names<T>::all;
};
template <class T>
concept Struct = requires(T& s) {
    members<std::remove_const_t<T>>::of(s);
};
template <class T>
concept Tuple = !std::ranges::range<T> && requires {
    std::tuple_size<T>::value;
};

/// One byte for the type of packed elements: its kind and size.
template <Packed T>
constexpr char code = static_cast<char>((std::is_floating_point_v<T> ? 'f'
                                         : std::is_signed_v<T>       ? 'i'
                                                                     : 'u') ^
                                        static_cast<char>(sizeof(T) << 3));
}  // namespace detail

class writer {
public:
    bytes data;

    template <class T>
    writer& put(const T& x) {
        if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
            const bool negative = std::is_signed_v<T> && x < T(0);
            raw(negative ? '-' : '+'), raw(static_cast<std::uint64_t>(x));
        } else if constexpr (std::is_floating_point_v<T>) {
            raw('f'), raw(static_cast<double>(x));
        } else if constexpr (detail::Named<T>) {
            for (const auto& [value, name] : names<T>::all)
                if (value == x) return put(std::string(name));
            put("no enumerator, value " + std::to_string(static_cast<long long>(x)));
        } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
            const std::string_view text = x;
            raw('s'), raw(std::uint64_t{text.size()}), append(text.data(), text.size());
        } else if constexpr (detail::Struct<const T>) {
            put(members<T>::of(x));
        } else if constexpr (detail::Tuple<T>) {
            raw('t'), raw(std::uint64_t{std::tuple_size_v<T>});
            std::apply([&](const auto&... one) { (put(one), ...); }, x);
        } else {
            using element = std::remove_cvref_t<std::ranges::range_value_t<const T&>>;
            if constexpr (detail::Packed<element> && std::ranges::contiguous_range<const T&>) {
                raw('v'), raw(detail::code<element>), raw(std::uint64_t{std::size(x)});
                append(std::data(x), std::size(x) * sizeof(element));
            } else {
                raw('l'), raw(std::uint64_t{std::size(x)});
                for (const auto& one : x) put(static_cast<const element&>(one));
            }
        }
        return *this;
    }

private:
    template <class T>
    void raw(T x) {
        append(&x, sizeof x);
    }
    void append(const void* from, std::size_t n) {
        const std::size_t at = data.size();
        data.resize(at + n);
        if (n) std::memcpy(data.data() + at, from, n);
    }
};

class reader {
public:
    explicit reader(std::span<const std::byte> data) : rest_(data) {}

    template <class T>
    T get() {
        if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
            const char sign = raw<char>();
            const auto value = raw<std::uint64_t>();
            require(sign == '+' || sign == '-', "an integer");
            const bool fits = sign == '-' ? std::is_signed_v<T> && static_cast<std::int64_t>(value) < 0 &&
                                                std::int64_t(T(value)) == static_cast<std::int64_t>(value)
                                          : value <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
            require(fits, "an integer of this size");
            return static_cast<T>(value);
        } else if constexpr (std::is_floating_point_v<T>) {
            const char kind = raw<char>();  // an integer will do
            if (kind == '-') return static_cast<T>(static_cast<std::int64_t>(raw<std::uint64_t>()));
            if (kind == '+') return static_cast<T>(raw<std::uint64_t>());
            require(kind == 'f', "a floating-point number");
            return static_cast<T>(raw<double>());
        } else if constexpr (detail::Named<T>) {
            const auto text = get<std::string>();
            for (const auto& [value, name] : names<T>::all)
                if (text == name) return value;
            throw wire_error("\"" + text + "\" is not one of the names of the enumeration");
        } else if constexpr (std::is_same_v<T, std::string>) {
            require(raw<char>() == 's', "a string");
            const auto n = count(1);
            const auto text = take(n);
            return std::string(reinterpret_cast<const char*>(text.data()), n);
        } else if constexpr (detail::Struct<T>) {
            T s{};
            std::apply([&](auto&... one) { tuple_of(one...); }, members<T>::of(s));
            return s;
        } else if constexpr (detail::Tuple<T>) {
            T all{};
            std::apply([&](auto&... one) { tuple_of(one...); }, all);
            return all;
        } else if constexpr (detail::Packed<typename T::value_type>) {
            using element = typename T::value_type;
            require(raw<char>() == 'v' && raw<char>() == detail::code<element>, "a vector of this type of elements");
            const auto n = count(sizeof(element));
            const auto from = take(n * sizeof(element));
            T all(n);
            if (n) std::memcpy(all.data(), from.data(), from.size());
            return all;
        } else {
            require(raw<char>() == 'l', "a vector");
            T all;
            for (auto n = count(9); n > 0; --n)
                all.push_back(get<typename T::value_type>());  // 9: the least a value takes
            return all;
        }
    }
    /// Everything has been read.
    void end() const { require(rest_.empty(), "the end of the values"); }

private:
    template <class... T>
    void tuple_of(T&... one) {
        require(raw<char>() == 't' && raw<std::uint64_t>() == sizeof...(T), "a tuple of this many values");
        ((one = get<T>()), ...);
    }
    static void require(bool right, const char* what) {
        if (!right) throw wire_error(std::string("the bytes are not ") + what);
    }
    std::span<const std::byte> take(std::size_t n) {
        require(n <= rest_.size(), "complete");
        const auto first = rest_.first(n);
        rest_ = rest_.subspan(n);
        return first;
    }
    template <class T>
    T raw() {
        T x;
        std::memcpy(&x, take(sizeof x).data(), sizeof x);
        return x;
    }
    /// A number of elements that take `each` bytes or more.
    std::size_t count(std::size_t each) {
        const auto n = raw<std::uint64_t>();
        require(n <= rest_.size() / each, "complete");
        return static_cast<std::size_t>(n);
    }

    std::span<const std::byte> rest_;
};

}  // namespace lab
