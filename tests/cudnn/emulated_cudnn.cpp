#include "cudnn/emulated_cudnn.hpp"

#include "nccl/emulated_cuda.hpp"

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/float16.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

struct cudnnContext {
    cudaStream_t stream = nullptr;
};

namespace emulated {

std::vector<cudnn_engine>& cudnn_engines() {
    static std::vector<cudnn_engine> all{{}};
    return all;
}

std::atomic<std::size_t>& cudnn_version() {
    static std::atomic<std::size_t> version = 91900;
    return version;
}

namespace {

struct object;
using handle = std::shared_ptr<object>;

struct attribute {
    cudnnBackendAttributeType_t type{};
    std::vector<char> bytes;
    std::vector<handle> objects;  // of descriptors
};

struct object {
    cudnnBackendDescriptorType_t type{};
    bool finished = false;
    std::map<cudnnBackendAttributeName_t, attribute> attributes;
    int engine = -1;  // of engines, configurations and plans

    bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) > 0; }
    const attribute& at(cudnnBackendAttributeName_t name) const {
        const auto found = attributes.find(name);
        if (found == attributes.end()) throw std::runtime_error("attribute " + std::to_string(name) + " is missing");
        return found->second;
    }
    template <class V>
    std::vector<V> values(cudnnBackendAttributeName_t name) const {
        const attribute& a = at(name);
        std::vector<V> all(a.bytes.size() / sizeof(V));
        std::memcpy(all.data(), a.bytes.data(), all.size() * sizeof(V));
        return all;
    }
    template <class V>
    V value(cudnnBackendAttributeName_t name) const {
        return values<V>(name).at(0);
    }
    const handle& one(cudnnBackendAttributeName_t name) const { return at(name).objects.at(0); }
};

std::mutex& lock_of_objects() {
    static std::mutex mine;
    return mine;
}
std::map<cudnnBackendDescriptor_t, handle>& objects() {
    static std::map<cudnnBackendDescriptor_t, handle> all;
    return all;
}
std::vector<int>& runs() {
    static std::vector<int> all;
    return all;
}
std::string& last_words() {
    thread_local std::string said;
    return said;
}

handle object_of(cudnnBackendDescriptor_t raw) {
    const std::scoped_lock guard(lock_of_objects());
    const auto found = objects().find(raw);
    if (found == objects().end()) throw std::runtime_error("a descriptor that there is not");
    return found->second;
}

std::size_t bytes_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_INT64:
            return sizeof(std::int64_t);
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR:
            return sizeof(void*);
        case CUDNN_TYPE_BOOLEAN:
            return sizeof(bool);
        case CUDNN_TYPE_FLOAT:
            return sizeof(float);
        case CUDNN_TYPE_DOUBLE:
            return sizeof(double);
        default:
            return sizeof(int);  // enumerations
    }
}

// Tensors.

using sizes = std::array<std::int64_t, 4>;

struct tensor_of_graph {
    std::int64_t id;
    cudnnDataType_t type;
    sizes size, step;
    bool on_chip, by_value;

    explicit tensor_of_graph(const object& o)
        : id(o.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
          type(o.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
          on_chip(o.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL)),
          by_value(o.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE)) {
        const auto d = o.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                   s = o.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
        if (d.size() != 4 || s.size() != 4) throw std::runtime_error("a tensor that has not four axes");
        std::copy(d.begin(), d.end(), size.begin());
        std::copy(s.begin(), s.end(), step.begin());
    }
    std::int64_t count() const { return size[0] * size[1] * size[2] * size[3]; }
    bool operator==(const tensor_of_graph&) const = default;

    template <class F>
    void each(F&& f) const {  // f(dense index, the four indices)
        std::int64_t at = 0;
        sizes i{};
        for (i[0] = 0; i[0] < size[0]; ++i[0])
            for (i[1] = 0; i[1] < size[1]; ++i[1])
                for (i[2] = 0; i[2] < size[2]; ++i[2])
                    for (i[3] = 0; i[3] < size[3]; ++i[3]) f(at++, i);
    }
    std::int64_t place(const sizes& i) const {
        return i[0] * step[0] + i[1] * step[1] + i[2] * step[2] + i[3] * step[3];
    }
};

double rounded(cudnnDataType_t type, double v) {
    switch (type) {
        case CUDNN_DATA_FLOAT:
            return static_cast<double>(static_cast<float>(v));
        case CUDNN_DATA_HALF:
            return static_cast<double>(float{cairn::float16(static_cast<float>(v))});
        case CUDNN_DATA_BFLOAT16:
            return static_cast<double>(float{cairn::bfloat16(static_cast<float>(v))});
        case CUDNN_DATA_INT32:
            return std::trunc(v);
        case CUDNN_DATA_BOOLEAN:
            return v != 0;
        default:
            throw std::runtime_error("a type of numbers that is not emulated");
    }
}
double number_at(cudnnDataType_t type, const void* from, std::int64_t at) {
    switch (type) {
        case CUDNN_DATA_FLOAT:
            return static_cast<double>(static_cast<const float*>(from)[at]);
        case CUDNN_DATA_HALF:
            return static_cast<double>(float{static_cast<const cairn::float16*>(from)[at]});
        case CUDNN_DATA_BFLOAT16:
            return static_cast<double>(float{static_cast<const cairn::bfloat16*>(from)[at]});
        default:
            throw std::runtime_error("a type of numbers in memory that is not emulated");
    }
}
void set_number_at(cudnnDataType_t type, void* to, std::int64_t at, double v) {
    switch (type) {
        case CUDNN_DATA_FLOAT:
            static_cast<float*>(to)[at] = static_cast<float>(v);
            return;
        case CUDNN_DATA_HALF:
            static_cast<cairn::float16*>(to)[at] = cairn::float16(static_cast<float>(v));
            return;
        case CUDNN_DATA_BFLOAT16:
            static_cast<cairn::bfloat16*>(to)[at] = cairn::bfloat16(static_cast<float>(v));
            return;
        default:
            throw std::runtime_error("a type of numbers in memory that is not emulated");
    }
}

// Running a graph.

struct memory_of_run {
    std::map<std::int64_t, void*> at;       // on the GPU
    std::map<std::int64_t, double> values;  // of the host
};

class interpreter {
public:
    explicit interpreter(memory_of_run memory) : memory_(std::move(memory)) {}

    void run(const object& o) {
        switch (o.type) {
            case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
                return pointwise(o);
            case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
                return reduce(o);
            case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
                return multiply(o);
            case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
                return reshape(o);
            default:
                throw std::runtime_error("an operation that is not emulated");
        }
    }

private:
    using numbers = std::vector<double>;

    numbers load(const tensor_of_graph& t) {
        if (t.on_chip) return chip_.at(t.id);
        if (t.by_value) return {memory_.values.at(t.id)};
        numbers all(static_cast<std::size_t>(t.count()));
        const void* const from = memory_.at.at(t.id);
        t.each(
            [&](std::int64_t i, const sizes& where) { all[std::size_t(i)] = number_at(t.type, from, t.place(where)); });
        return all;
    }
    void store(const tensor_of_graph& t, numbers all) {
        for (double& v : all) v = rounded(t.type, v);
        if (t.on_chip) {
            chip_[t.id] = std::move(all);
            return;
        }
        void* const to = memory_.at.at(t.id);
        t.each([&](std::int64_t i, const sizes& where) {
            set_number_at(t.type, to, t.place(where), all[std::size_t(i)]);
        });
    }

    void pointwise(const object& o) {
        const object& rule = *o.one(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        const auto mode = rule.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        const tensor_of_graph x(*o.one(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)),
            y(*o.one(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        if (x.size != y.size) throw std::runtime_error("a pointwise operation that changes sizes");
        const numbers a = mode == CUDNN_POINTWISE_GEN_INDEX ? numbers(std::size_t(x.count())) : load(x);
        numbers result(std::size_t(y.count()));
        const auto other = [&](cudnnBackendAttributeName_t name) -> std::function<double(const sizes&)> {
            if (!o.has(name)) return [](const sizes&) { return 0.0; };
            const tensor_of_graph t(*o.one(name));
            return [t, all = load(t)](const sizes& i) {
                std::int64_t at = 0;
                for (std::size_t axis = 0; axis < 4; ++axis) at = at * t.size[axis] + (t.size[axis] == 1 ? 0 : i[axis]);
                return all.at(std::size_t(at));
            };
        };
        const auto b = other(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), t = other(CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
        const std::int64_t axis =
            rule.has(CUDNN_ATTR_POINTWISE_AXIS) ? rule.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS) : -1;
        y.each([&](std::int64_t n, const sizes& i) {
            const double v = a[std::size_t(n)];
            double& to = result[std::size_t(n)];
            switch (mode) {
                case CUDNN_POINTWISE_ADD:
                    to = v + b(i);
                    break;
                case CUDNN_POINTWISE_SUB:
                    to = v - b(i);
                    break;
                case CUDNN_POINTWISE_MUL:
                    to = v * b(i);
                    break;
                case CUDNN_POINTWISE_DIV:
                    to = v / b(i);
                    break;
                case CUDNN_POINTWISE_IDENTITY:
                    to = v;
                    break;
                case CUDNN_POINTWISE_EXP:
                    to = std::exp(v);
                    break;
                case CUDNN_POINTWISE_LOG:
                    to = std::log(v);
                    break;
                case CUDNN_POINTWISE_CMP_GE:
                    to = v >= b(i);
                    break;
                case CUDNN_POINTWISE_GEN_INDEX:
                    to = static_cast<double>(i.at(std::size_t(axis)));
                    break;
                case CUDNN_POINTWISE_BINARY_SELECT:
                    to = t(i) != 0 ? v : b(i);
                    break;
                default:
                    throw std::runtime_error("a pointwise rule that is not emulated");
            }
        });
        store(y, std::move(result));
    }

    void reduce(const object& o) {
        const auto how =
            o.one(CUDNN_ATTR_OPERATION_REDUCTION_DESC)->value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
        const tensor_of_graph x(*o.one(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
            y(*o.one(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
        if (y.size != sizes{x.size[0], x.size[1], x.size[2], 1}) throw std::runtime_error("a reduction of other axes");
        const bool largest = how == CUDNN_REDUCE_TENSOR_MAX;
        numbers result(std::size_t(y.count()), largest ? -std::numeric_limits<double>::infinity() : 0.0);
        const numbers a = load(x);
        for (std::size_t i = 0; i < a.size(); ++i) {
            double& to = result[i / std::size_t(x.size[3])];
            to = largest ? std::max(to, a[i]) : to + a[i];
        }
        store(y, std::move(result));
    }

    void multiply(const object& o) {
        const tensor_of_graph a(*o.one(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
            b(*o.one(CUDNN_ATTR_OPERATION_MATMUL_BDESC)), c(*o.one(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        if (a.size[3] != b.size[2] || c.size != sizes{a.size[0], a.size[1], a.size[2], b.size[3]} ||
            b.size[0] != a.size[0] || b.size[1] != a.size[1])
            throw std::runtime_error("a product of sizes that do not fit");
        const numbers left = load(a), right = load(b);
        numbers result(std::size_t(c.count()));
        const auto rows = std::size_t(a.size[2]), inner = std::size_t(a.size[3]), columns = std::size_t(b.size[3]);
        for (std::size_t batch = 0; batch < std::size_t(a.size[0] * a.size[1]); ++batch)
            for (std::size_t r = 0; r < rows; ++r)
                for (std::size_t k = 0; k < inner; ++k) {
                    const double v = left[(batch * rows + r) * inner + k];
                    for (std::size_t j = 0; j < columns; ++j)
                        result[(batch * rows + r) * columns + j] += v * right[(batch * inner + k) * columns + j];
                }
        store(c, std::move(result));
    }

    // The numbers where they lie, seen with other sizes and steps.
    void reshape(const object& o) {
        const tensor_of_graph x(*o.one(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
            y(*o.one(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
        const numbers a = load(x);
        std::map<std::int64_t, double> lying;
        x.each([&](std::int64_t i, const sizes& where) { lying[x.place(where)] = a[std::size_t(i)]; });
        numbers result(std::size_t(y.count()));
        y.each([&](std::int64_t i, const sizes& where) { result[std::size_t(i)] = lying.at(y.place(where)); });
        store(y, std::move(result));
    }

    memory_of_run memory_;
    std::map<std::int64_t, numbers> chip_;
};

struct ends {
    std::vector<cudnnBackendAttributeName_t> inputs, outputs;
};

ends ends_of(const object& o) {
    switch (o.type) {
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            return {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                    {CUDNN_ATTR_OPERATION_POINTWISE_YDESC}};
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            return {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, {CUDNN_ATTR_OPERATION_REDUCTION_YDESC}};
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            return {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                    {CUDNN_ATTR_OPERATION_MATMUL_CDESC}};
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            return {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, {CUDNN_ATTR_OPERATION_RESHAPE_YDESC}};
        default:
            throw std::runtime_error("an operation that is not emulated");
    }
}

/// The tensors of a graph by number. Throws where two differ, or where one on the chip is read before it was made.
std::map<std::int64_t, tensor_of_graph> tensors_of(const object& graph) {
    std::map<std::int64_t, tensor_of_graph> all;
    std::set<std::int64_t> made;
    for (const handle& o : graph.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) {
        const ends e = ends_of(*o);
        for (const auto& names : {e.inputs, e.outputs})
            for (const auto name : names) {
                if (!o->has(name)) continue;
                const tensor_of_graph t(*o->one(name));
                const auto [known, is_new] = all.emplace(t.id, t);
                if (!is_new && !(known->second == t)) throw std::runtime_error("two tensors of one number");
                if (&names == &e.inputs) continue;
                made.insert(t.id);
            }
        for (const auto name : e.inputs)
            if (o->has(name)) {
                const tensor_of_graph t(*o->one(name));
                if (t.on_chip && !made.count(t.id)) throw std::runtime_error("a tensor that no operation has made");
            }
    }
    return all;
}

/// Attributes that a descriptor needs before it is finalised.
void check_whole(object& o) {
    const auto needs = [&](std::initializer_list<cudnnBackendAttributeName_t> names) {
        for (const auto name : names) o.at(name);
    };
    switch (o.type) {
        case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
            needs({CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT});
            static_cast<void>(tensor_of_graph(o));
            return;
        case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
            needs({CUDNN_ATTR_POINTWISE_MODE, CUDNN_ATTR_POINTWISE_MATH_PREC});
            if (o.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_GEN_INDEX)
                needs({CUDNN_ATTR_POINTWISE_AXIS});
            return;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: {
            needs({CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                   CUDNN_ATTR_OPERATION_POINTWISE_YDESC});
            const auto mode = o.one(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
                                  ->value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
            if (mode != CUDNN_POINTWISE_IDENTITY && mode != CUDNN_POINTWISE_EXP && mode != CUDNN_POINTWISE_LOG &&
                mode != CUDNN_POINTWISE_GEN_INDEX)
                needs({CUDNN_ATTR_OPERATION_POINTWISE_BDESC});
            if (mode == CUDNN_POINTWISE_BINARY_SELECT) needs({CUDNN_ATTR_OPERATION_POINTWISE_TDESC});
            return;
        }
        case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
            return needs({CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_ATTR_REDUCTION_COMP_TYPE});
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            return needs({CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                          CUDNN_ATTR_OPERATION_REDUCTION_YDESC});
        case CUDNN_BACKEND_MATMUL_DESCRIPTOR:
            return needs({CUDNN_ATTR_MATMUL_COMP_TYPE});
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            return needs({CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
                          CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC});
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            return needs({CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC});
        case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
            needs({CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_OPERATIONGRAPH_OPS});
            static_cast<void>(tensors_of(o));
            return;
        case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
            return needs({CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINEHEUR_MODE});
        case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
            needs({CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG});
            o.engine = o.one(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
            if (!cudnn_engines().at(std::size_t(o.engine)).works) throw std::runtime_error("this engine cannot");
            return;
        }
        case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
            return needs({CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                          CUDNN_ATTR_VARIANT_PACK_WORKSPACE});
        default:
            throw std::runtime_error("a descriptor that is not emulated");
    }
}

void execute(cudaStream_t stream, const handle& plan, const object& pack) {
    const handle graph = plan->one(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->one(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const auto ids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const auto at = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void* const scratch = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (ids.size() != at.size()) throw std::runtime_error("numbers and addresses of tensors are not as many");
    memory_of_run memory;
    const auto tensors = tensors_of(*graph);
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto known = tensors.find(ids[i]);
        if (known == tensors.end() || known->second.on_chip)
            throw std::runtime_error("the graph has no tensor " + std::to_string(ids[i]) + " in memory");
        if (known->second.by_value) {
            memory.values[ids[i]] = number_at(known->second.type, at[i], 0);
        } else {
            if (reinterpret_cast<std::uintptr_t>(at[i]) % 16 != 0 || !at[i])
                throw std::runtime_error("tensor " + std::to_string(ids[i]) + " is at no multiple of 16 bytes");
            memory.at[ids[i]] = at[i];
        }
    }
    for (const auto& [id, t] : tensors)
        if (!t.on_chip && !memory.at.count(id) && !memory.values.count(id))
            throw std::runtime_error("no address was given for tensor " + std::to_string(id));
    const int engine = plan->engine;
    const cudnn_engine kind = cudnn_engines().at(std::size_t(engine));
    emulated::launch(stream, [=] {
        {
            const std::scoped_lock guard(lock_of_objects());
            runs().push_back(engine);
        }
        if (kind.workspace > 0) std::memset(scratch, 0xff, std::size_t(kind.workspace));
        interpreter machine(memory);
        for (const handle& o : graph->at(CUDNN_ATTR_OPERATIONGRAPH_OPS).objects) machine.run(*o);
    });
}

template <class F>
cudnnStatus_t said(F&& f) {
    try {
        f();
        return CUDNN_STATUS_SUCCESS;
    } catch (const std::exception& e) {
        last_words() = e.what();
        return CUDNN_STATUS_BAD_PARAM;
    }
}

}  // namespace

std::vector<int> cudnn_runs() {
    const std::scoped_lock guard(lock_of_objects());
    return runs();
}

}  // namespace emulated

extern "C" {

std::size_t cudnnGetVersion() { return emulated::cudnn_version(); }
const char* cudnnGetErrorString(cudnnStatus_t s) { return s == CUDNN_STATUS_SUCCESS ? "success" : "bad parameter"; }
void cudnnGetLastErrorString(char* message, std::size_t room) {
    std::strncpy(message, emulated::last_words().c_str(), room - 1);
    message[room - 1] = '\0';
    emulated::last_words().clear();
}
cudnnStatus_t cudnnCreate(cudnnHandle_t* h) {
    *h = new cudnnContext;  // of a thread, for as long as the process
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s) {
    h->stream = s;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* d) {
    auto made = std::make_shared<emulated::object>();
    made->type = type;
    *d = made.get();
    const std::scoped_lock guard(emulated::lock_of_objects());
    emulated::objects()[*d] = std::move(made);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    emulated::handle last;
    const std::scoped_lock guard(emulated::lock_of_objects());
    const auto found = emulated::objects().find(d);
    if (found == emulated::objects().end()) return CUDNN_STATUS_BAD_PARAM;
    last = std::move(found->second);
    emulated::objects().erase(found);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    return emulated::said([&] {
        emulated::object& o = *emulated::object_of(d);
        if (o.finished) throw std::runtime_error("a finalised descriptor does not change");
        emulated::attribute a{type, {}, {}};
        const auto* const bytes = static_cast<const char*>(values);
        a.bytes.assign(bytes, bytes + static_cast<std::size_t>(count) * emulated::bytes_of(type));
        if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            for (std::int64_t i = 0; i < count; ++i) {
                a.objects.push_back(emulated::object_of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
                if (!a.objects.back()->finished) throw std::runtime_error("a descriptor that is not finalised");
            }
        o.attributes[name] = std::move(a);
    });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    return emulated::said([&] {
        emulated::object& o = *emulated::object_of(d);
        emulated::check_whole(o);
        o.finished = true;
    });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, std::int64_t room, std::int64_t* count,
                                       void* values) {
    return emulated::said([&] {
        emulated::object& o = *emulated::object_of(d);
        const auto& engines = emulated::cudnn_engines();
        if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
            // The fallback has nothing more to suggest.
            const bool has_any = o.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
            *count = has_any ? static_cast<std::int64_t>(engines.size()) : 0;
            for (std::int64_t i = 0; i < std::min(room, *count); ++i) {
                emulated::object& c = *emulated::object_of(static_cast<cudnnBackendDescriptor_t*>(values)[i]);
                c.engine = static_cast<int>(i);
                c.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] = o.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
                c.finished = true;
            }
        } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
            emulated::object_of(*static_cast<cudnnBackendDescriptor_t*>(values))->engine = o.engine;
            *count = 1;
        } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
            const auto& notes = engines.at(static_cast<std::size_t>(o.engine)).notes;
            *count = static_cast<std::int64_t>(notes.size());
            std::copy_n(notes.begin(), std::min<std::size_t>(notes.size(), static_cast<std::size_t>(room)),
                        static_cast<cudnnBackendNumericalNote_t*>(values));
        } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
            *static_cast<std::int64_t*>(values) = engines.at(static_cast<std::size_t>(o.engine)).workspace;
        } else {
            throw std::runtime_error("an attribute that is never read");
        }
    });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    return emulated::said([&] { emulated::execute(h->stream, emulated::object_of(plan), *emulated::object_of(pack)); });
}

}  // extern "C"
