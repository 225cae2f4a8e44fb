# Put into llama.cpp's build by CMAKE_PROJECT_INCLUDE, since a plain -D cannot say these.

# Its library of command-line helpers is half of the build, and nothing here uses it; llama-cpp-python's own
# CMake file forces it on.
set(LLAMA_BUILD_COMMON OFF)

# Tuned for no machine in particular, GCC clears the accumulators of a small matrix product by `rep stos`, which
# takes as long to begin as such a product takes: 5 to 10 % of an embedding (bench/engine_builds.py).
if(GGML_CPU_ALL_VARIANTS AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(
        "$<$<COMPILE_LANGUAGE:C,CXX>:-mmemset-strategy=vector_loop:1024:noalign,libcall:-1:noalign>")
endif()
