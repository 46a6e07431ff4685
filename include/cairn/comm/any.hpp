#pragma once
// Any communicator behind one type, for programs that choose at run time.

#include <cairn/comm/reduction.hpp>
#include <cairn/comm/self.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

/// Holds a communicator of any kind. Forwards the optional members that it has; vendor_all_reduce for the types of
/// vendor_span.
class any_communicator {
public:
    /// Any request.
    class request {
    public:
        request() = default;
        // In this order: clang would ask whether a request is a request for ever.
        template <class R>
            requires(!std::same_as<R, request> && Request<R>)
        explicit request(R r) : self_(std::make_unique<model<R>>(std::move(r))) {}
        void wait() {
            if (self_) self_->wait();
            self_ = nullptr;
        }
        bool test() {
            if (self_ && !self_->test()) return false;
            self_ = nullptr;
            return true;
        }

    private:
        struct interface {
            virtual ~interface() = default;
            virtual void wait() = 0;
            virtual bool test() = 0;
        };
        template <class R>
        struct model final : interface {
            explicit model(R r) : inner(std::move(r)) {}
            void wait() override { inner.wait(); }
            bool test() override { return inner.test(); }
            R inner;
        };
        std::unique_ptr<interface> self_;
    };

    template <class C>
        requires(!std::same_as<C, any_communicator>)
    any_communicator(C c) : self_(std::make_unique<model<C>>(std::move(c))) {}

    int rank() const { return self_->rank(); }
    int size() const { return self_->size(); }
    std::string name() const { return self_->name(); }
    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        return self_->isend(data, peer, tag);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) { return self_->irecv(room, peer, tag); }
    [[nodiscard]] any_communicator split(int colour, int key) { return self_->split(colour, key); }
    /// The ranks on this rank's machine; this rank alone where the communicator does not know.
    [[nodiscard]] any_communicator split_node() { return self_->split_node(); }
    [[nodiscard]] std::shared_ptr<void> enter(const collective_call& call) { return self_->enter(call); }
    bool buffers_on_gpu() const { return self_->buffers_on_gpu(); }
    /// A reduction over so many bytes is about to run here.
    void compute(index_t bytes) { self_->compute(bytes); }

    /// Whether vendor_all_reduce works.
    bool has_vendor() const { return self_->has_vendor(); }
    template <class T>
    void vendor_all_reduce(std::span<T> data, reduction r = reduction::sum) {
        self_->vendor_all_reduce(data, r);
    }
    /// Whether vendor_broadcast works.
    bool has_vendor_broadcast() const { return self_->has_vendor_broadcast(); }
    template <class T>
    void vendor_broadcast(std::span<T> data, int root) {
        self_->vendor_broadcast(std::as_writable_bytes(data), root);
    }
    /// Whether vendor_all_gather_v works.
    bool has_vendor_all_gather() const { return self_->has_vendor_all_gather(); }
    template <class T>
    void vendor_all_gather_v(std::span<T> data, std::vector<range> parts) {
        constexpr auto size = static_cast<index_t>(sizeof(T));
        for (range& part : parts) part = {part.begin * size, part.count * size};
        self_->vendor_all_gather_v(std::as_writable_bytes(data), parts);
    }
    /// Whether vendor_reduce_scatter_v works.
    bool has_vendor_reduce_scatter() const { return self_->has_vendor_reduce_scatter(); }
    template <class T>
    void vendor_reduce_scatter_v(std::span<T> data, const std::vector<range>& parts, reduction r = reduction::sum) {
        self_->vendor_reduce_scatter_v(data, parts, r);
    }

private:
    using vendor_span = std::variant<std::span<float>, std::span<double>, std::span<bfloat16>, std::span<float16>,
                                     std::span<std::int32_t>>;
    using parts_of = const std::vector<range>&;
    struct interface {
        virtual ~interface() = default;
        virtual int rank() const = 0;
        virtual int size() const = 0;
        virtual std::string name() const = 0;
        virtual request isend(std::span<const std::byte>, int, int) = 0;
        virtual request irecv(std::span<std::byte>, int, int) = 0;
        virtual any_communicator split(int, int) = 0;
        virtual any_communicator split_node() = 0;
        virtual std::shared_ptr<void> enter(const collective_call&) = 0;
        virtual bool buffers_on_gpu() const = 0;
        virtual void compute(index_t) = 0;
        virtual bool has_vendor() const = 0;
        virtual void vendor_all_reduce(vendor_span, reduction) = 0;
        virtual bool has_vendor_broadcast() const = 0;
        virtual void vendor_broadcast(std::span<std::byte>, int) = 0;
        virtual bool has_vendor_all_gather() const = 0;
        virtual void vendor_all_gather_v(std::span<std::byte>, parts_of) = 0;
        virtual bool has_vendor_reduce_scatter() const = 0;
        virtual void vendor_reduce_scatter_v(vendor_span, parts_of, reduction) = 0;
    };

    template <class C>
    struct model final : interface {
        explicit model(C c) : inner(std::move(c)) {}
        int rank() const override { return inner.rank(); }
        int size() const override { return inner.size(); }
        std::string name() const override { return inner.name(); }
        request isend(std::span<const std::byte> data, int peer, int tag) override {
            return request(inner.isend(data, peer, tag));
        }
        request irecv(std::span<std::byte> room, int peer, int tag) override {
            return request(inner.irecv(room, peer, tag));
        }
        any_communicator split(int colour, int key) override { return inner.split(colour, key); }
        any_communicator split_node() override {
            if constexpr (requires { inner.split_node(); })
                return inner.split_node();
            else
                return self_communicator{};
        }
        std::shared_ptr<void> enter(const collective_call& call) override {
            if constexpr (requires { inner.enter(call); }) {
                using scope = decltype(inner.enter(call));
                struct kept {
                    kept(C& c, const collective_call& what) : s(c.enter(what)) {}
                    scope s;
                };
                return std::make_shared<kept>(inner, call);
            } else {
                return nullptr;
            }
        }
        bool buffers_on_gpu() const override { return cairn::buffers_on_gpu(inner); }
        void compute(index_t bytes) override {
            if constexpr (requires { inner.compute(bytes); }) inner.compute(bytes);
        }
        bool has_vendor() const override {
            return requires(C & c, std::span<float> data) { c.vendor_all_reduce(data, reduction::sum); };
        }
        void vendor_all_reduce(vendor_span all, reduction r) override {
            std::visit([&](auto data) { vendor_all_reduce_of(data, r); }, all);
        }
        bool has_vendor_broadcast() const override {
            return requires(C & c, std::span<std::byte> data) { c.vendor_broadcast(data, 0); };
        }
        void vendor_broadcast(std::span<std::byte> data, int root) override {
            if constexpr (requires { inner.vendor_broadcast(data, root); })
                inner.vendor_broadcast(data, root);
            else
                fail(inner.name(), ": has no broadcast of its own");
        }
        bool has_vendor_all_gather() const override {
            return requires(C & c, std::span<std::byte> data, parts_of parts) { c.vendor_all_gather_v(data, parts); };
        }
        void vendor_all_gather_v(std::span<std::byte> data, parts_of parts) override {
            if constexpr (requires { inner.vendor_all_gather_v(data, parts); })
                inner.vendor_all_gather_v(data, parts);
            else
                fail(inner.name(), ": has no all-gather of its own");
        }
        bool has_vendor_reduce_scatter() const override {
            return requires(C & c, std::span<float> data, parts_of parts) {
                c.vendor_reduce_scatter_v(data, parts, reduction::sum);
            };
        }
        void vendor_reduce_scatter_v(vendor_span all, parts_of parts, reduction r) override {
            std::visit([&](auto data) { vendor_reduce_scatter_of(data, parts, r); }, all);
        }
        // Functions and not lambdas: inside a generic lambda nvcc takes every branch.
        template <class T>
        void vendor_all_reduce_of(std::span<T> data, reduction r) {
            if constexpr (requires(C & c) { c.vendor_all_reduce(data, r); })
                inner.vendor_all_reduce(data, r);
            else
                fail(inner.name(), ": has no all-reduce of its own");
        }
        template <class T>
        void vendor_reduce_scatter_of(std::span<T> data, parts_of parts, reduction r) {
            if constexpr (requires(C & c) { c.vendor_reduce_scatter_v(data, parts, r); })
                inner.vendor_reduce_scatter_v(data, parts, r);
            else
                fail(inner.name(), ": has no reduce-scatter of its own");
        }
        C inner;
    };

    std::unique_ptr<interface> self_;
};

static_assert(Communicator<any_communicator>);

}  // namespace cairn
