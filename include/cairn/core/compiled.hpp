#pragma once
// Templates that nearly every program uses may be compiled once instead of in each of its files. CMake's target
// cairn::compiled holds the code and defines CAIRN_COMPILED for targets that link it. Without it everything stays in
// headers, and these macros are empty.
//
//   CAIRN_COMPILED_ONCE(part, class x<float>)   declares it: extern template class x<float>; in the file of this part,
//                                               where CAIRN_COMPILED_part is nothing, defines it
//   CAIRN_COMPILED_CLASS(x)                     class x<float, cpu> and class x<double, cpu>
//   CAIRN_COMPILED_NETWORK(f(int))              sequential<float, cpu> f(int), and that of double
//   CAIRN_COMPILED_OPTIMIZER(o)                 class bound_optimizer<o> for both
//
// To be used inside namespace cairn, after the template. The parts are listed in .cmake/cairn-compiled.cmake. Compilers
// instantiate members that are written inside their class all the same, to inline them; free functions they leave out:
// kernels, which take most time to compile, are behind such ones.

#ifdef CAIRN_COMPILED

#ifndef CAIRN_COMPILED_layers_float
#define CAIRN_COMPILED_layers_float extern
#endif
#ifndef CAIRN_COMPILED_layers_double
#define CAIRN_COMPILED_layers_double extern
#endif
#ifndef CAIRN_COMPILED_networks_float
#define CAIRN_COMPILED_networks_float extern
#endif
#ifndef CAIRN_COMPILED_networks_double
#define CAIRN_COMPILED_networks_double extern
#endif
#ifndef CAIRN_COMPILED_optimizers_float
#define CAIRN_COMPILED_optimizers_float extern
#endif
#ifndef CAIRN_COMPILED_optimizers_double
#define CAIRN_COMPILED_optimizers_double extern
#endif
#define CAIRN_COMPILED_ONCE(part, ...) CAIRN_COMPILED_##part template __VA_ARGS__;

#else

#define CAIRN_COMPILED_ONCE(part, ...)

#endif

#define CAIRN_COMPILED_CLASS(name)                            \
    CAIRN_COMPILED_ONCE(layers_float, class name<float, cpu>) \
    CAIRN_COMPILED_ONCE(layers_double, class name<double, cpu>)
#define CAIRN_COMPILED_NETWORK(...)                                         \
    CAIRN_COMPILED_ONCE(networks_float, sequential<float, cpu> __VA_ARGS__) \
    CAIRN_COMPILED_ONCE(networks_double, sequential<double, cpu> __VA_ARGS__)
#define CAIRN_COMPILED_OPTIMIZER(name)                                             \
    CAIRN_COMPILED_ONCE(optimizers_float, class bound_optimizer<name, float, cpu>) \
    CAIRN_COMPILED_ONCE(optimizers_double, class bound_optimizer<name, double, cpu>)
