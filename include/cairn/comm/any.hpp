#pragma once
// Any communicator behind one type, for programs that choose at run time.

#include <cairn/comm/self.hpp>
#include <cairn/comm/vendor_collectives.hpp>

#include <memory>
#include <span>
#include <string>
#include <utility>

namespace cairn {

/// Holds a communicator of any kind. Forwards the optional members that it has.
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
    /// The ranks on this rank's machine; this rank alone if the communicator has no split_node().
    [[nodiscard]] any_communicator split_node() { return self_->split_node(); }
    [[nodiscard]] std::shared_ptr<void> enter(const collective_call& call) { return self_->enter(call); }
    bool buffers_on_gpu() const { return self_->buffers_on_gpu(); }
    /// A reduction over `bytes` is about to run here.
    void compute(index_t bytes) { self_->compute(bytes); }

    /// Null where there are none.
    vendor_collectives* vendor() { return self_->vendor(); }

private:
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
        virtual vendor_collectives* vendor() = 0;
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
        vendor_collectives* vendor() override { return vendor_of(inner); }
        C inner;
    };

    std::unique_ptr<interface> self_;
};

static_assert(Communicator<any_communicator>);

}  // namespace cairn
