// What the tests may call, in float and in double. A matrix travels as (rows, columns, elements row by row), an
// expression as its operations in order, of which each names the places of its operands: inputs first, then results.

#include "worker.hpp"

#include "classifier.hpp"
#include "cross_entropy.hpp"
#include "gradient_check.hpp"
#include "layers.hpp"
#include "sgd.hpp"
#include "tape.hpp"
#include "tensors.hpp"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

namespace {

template <class T>
using values = std::tuple<std::size_t, std::size_t, std::vector<T>>;
template <class T>
using network = std::tuple<values<T>, std::vector<T>, values<T>, std::vector<T>>;  // W1, b1, W2, b2
using sizes = std::vector<std::size_t>;
using numbers = std::vector<double>;

template <class T>
student::matrix<T> matrix(const values<T>& v) {
    const auto& [rows, columns, elements] = v;
    student::matrix<T> m = student::matrix<T>::from_shape({rows, columns});
    std::copy(elements.begin(), elements.end(), m.data());
    return m;
}
template <class T>
student::vec<T> vec(const std::vector<T>& elements) {
    student::vec<T> v = student::vec<T>::from_shape({elements.size()});
    std::copy(elements.begin(), elements.end(), v.data());
    return v;
}
template <class T>
values<T> out(const student::matrix<T>& m) {
    return {m.shape(0), m.shape(1), std::vector<T>(m.data(), m.data() + m.size())};
}
template <class T>
std::vector<T> out(const student::vec<T>& v) {
    return {v.data(), v.data() + v.size()};
}
template <class T>
student::classifier<T> classifier(const network<T>& net) {
    const auto& [w1, b1, w2, b2] = net;
    return {matrix(w1), vec(b1), matrix(w2), vec(b2)};
}
template <class T>
network<T> out(const student::classifier<T>& net) {
    return {out(net.w1), out(net.b1), out(net.w2), out(net.b2)};
}

template <class T>
bool served(const std::string& type) {
    using lab::serve;
    serve("transposed" + type, [](values<T> x) { return out(student::matrix<T>(student::transposed(matrix(x)))); });
    serve("standardised" + type,
          [](values<T> x, T epsilon) { return out(student::matrix<T>(student::standardised(matrix(x), epsilon))); });
    serve("linear_forward" + type, [](values<T> x, values<T> w, std::vector<T> b) {
        return out(student::matrix<T>(student::linear_forward(matrix(x), matrix(w), vec(b))));
    });
    serve("linear_backward" + type, [](values<T> x, values<T> w, values<T> dy) {
        const student::linear_gradients<T> d = student::linear_backward(matrix(x), matrix(w), matrix(dy));
        return std::tuple(out(d.x), out(d.w), out(d.b));
    });
    serve("relu" + type, [](values<T> x) { return out(student::matrix<T>(student::relu(matrix(x)))); });
    serve("relu_backward" + type, [](values<T> x, values<T> dy) {
        return out(student::matrix<T>(student::relu_backward(matrix(x), matrix(dy))));
    });
    serve("softmax" + type, [](values<T> x) { return out(student::matrix<T>(student::softmax(matrix(x)))); });
    serve("cross_entropy" + type, [](values<T> logits, std::vector<int> labels) {
        const student::loss_result<T> r = student::cross_entropy(matrix(logits), labels);
        return std::tuple(r.loss, out(r.gradient));
    });
    serve("logits_of" + type, [](network<T> net, values<T> x) {
        return out(student::matrix<T>(student::logits_of(classifier(net), matrix(x))));
    });
    serve("gradient_of" + type, [](network<T> net, values<T> x, std::vector<int> labels) {
        const student::classifier_gradient<T> g = student::gradient_of(classifier(net), matrix(x), labels);
        return std::tuple(g.loss, out(g.gradient));
    });
    serve("train" + type, [](network<T> net, values<T> x, std::vector<int> labels, std::size_t epochs,
                             std::size_t batch, double lr, double momentum, double decay, std::uint64_t seed) {
        student::classifier<T> trained = classifier(net);
        student::training settings;
        settings.epochs = epochs, settings.batch = batch, settings.seed = seed;
        settings.optimizer.lr = lr, settings.optimizer.momentum = momentum, settings.optimizer.weight_decay = decay;
        const numbers losses = student::train(trained, matrix(x), labels, settings);
        return std::tuple(losses, out(trained));
    });
    return true;
}

using operation = std::tuple<std::string, std::size_t, int>;  // name, first operand, second operand or exponent

student::variable applied(const operation& o, const std::vector<student::variable>& v) {
    const auto& [name, first, second] = o;
    const student::variable a = v.at(first);
    if (name == "exp") return exp(a);
    if (name == "log") return log(a);
    if (name == "relu") return relu(a);
    if (name == "pow") return pow(a, second);
    const student::variable b = v.at(static_cast<std::size_t>(second));
    if (name == "+") return a + b;
    if (name == "-") return a - b;
    if (name == "*") return a * b;
    if (name == "/") return a / b;
    if (name == "max") return max(a, b);
    throw std::out_of_range("there is no operation " + name);
}

/// Values and gradients of all inputs and results, after a backward pass from each place of `passes`; -1 stands for
/// zero_gradients.
std::pair<numbers, numbers> on_a_tape(const numbers& inputs, const std::vector<operation>& operations,
                                      const std::vector<int>& passes) {
    student::tape tape;
    std::vector<student::variable> v;
    for (const double x : inputs) v.push_back(tape.input(x));
    for (const operation& o : operations) v.push_back(applied(o, v));
    for (const int from : passes)
        if (from < 0)
            tape.zero_gradients();
        else
            tape.backward(v.at(static_cast<std::size_t>(from)));
    std::pair<numbers, numbers> all;
    for (const student::variable one : v) all.first.push_back(one.value()), all.second.push_back(one.gradient());
    return all;
}

/// y and the gradients of x, W and b, where dy is the gradient of y. Each row of x goes through the same weights.
std::tuple<values<double>, values<double>, values<double>, numbers> layer_on_a_tape(const values<double>& x,
                                                                                    const values<double>& w,
                                                                                    const numbers& b,
                                                                                    const values<double>& dy) {
    student::tape tape;
    const auto inputs = [&](const numbers& from) {
        std::vector<student::variable> all;
        for (const double one : from) all.push_back(tape.input(one));
        return all;
    };
    const auto gradients = [](const std::vector<student::variable>& of) {
        numbers all;
        for (const student::variable one : of) all.push_back(one.gradient());
        return all;
    };
    const auto& [rows, columns, elements] = x;
    const std::vector<student::variable> xs = inputs(elements), ws = inputs(std::get<2>(w)), bs = inputs(b),
                                         dys = inputs(std::get<2>(dy));
    student::variable loss = tape.input(0);
    numbers y;
    for (std::size_t n = 0; n < rows; ++n) {
        const std::vector<student::variable> row = student::layer(std::span(xs).subspan(n * columns, columns), ws, bs);
        for (std::size_t o = 0; o < row.size(); ++o) {
            loss = loss + dys.at(n * b.size() + o) * row[o];
            y.push_back(row[o].value());
        }
    }
    tape.backward(loss);
    return {{rows, b.size(), y},
            {rows, columns, gradients(xs)},
            {std::get<0>(w), std::get<1>(w), gradients(ws)},
            gradients(bs)};
}

std::map<int, student::sgd<double>> optimizers;

double function(std::span<const double> at) {  // the judge's, which counts
    return lab::ask<double>("f", at);
}

const bool all_served[] = {
    lab::serve("tape", [](numbers inputs, std::vector<operation> operations,
                          std::vector<int> passes) { return on_a_tape(inputs, operations, passes); }),
    lab::serve("layer on a tape", [](values<double> x, values<double> w, numbers b,
                                     values<double> dy) { return layer_on_a_tape(x, w, b, dy); }),
    lab::serve("row_major_strides", [](sizes shape) { return student::row_major_strides(shape); }),
    lab::serve("offset_of", [](sizes strides, sizes index) { return student::offset_of(strides, index); }),
    served<float>(" float"),
    served<double>(" double"),
    lab::serve("numerical_gradient",
               [](numbers theta) { return student::numerical_gradient(function, std::span<const double>(theta)); }),
    lab::serve("check_gradient",
               [](numbers theta, numbers gradient) {
                   const student::gradient_verdict v = student::check_gradient(function, std::span<const double>(theta),
                                                                               std::span<const double>(gradient));
                   return std::pair(v.right, v.worst);
               }),
    lab::serve("sgd",  // optimizer number `which`, from now on
               [](int which, double lr, double momentum, double decay) {
                   student::sgd_config config;
                   config.lr = lr, config.momentum = momentum, config.weight_decay = decay;
                   optimizers.insert_or_assign(which, student::sgd<double>(config));
               }),
    lab::serve("sgd::step",
               [](int which, double lr, std::vector<numbers> parameters, std::vector<numbers> gradients) {
                   student::sgd<double>& optimizer = optimizers.at(which);
                   optimizer.config.lr = lr;
                   const std::vector<std::span<double>> theta(parameters.begin(), parameters.end());
                   const std::vector<std::span<const double>> g(gradients.begin(), gradients.end());
                   optimizer.step(theta, g);
                   return parameters;
               }),
};

}  // namespace
