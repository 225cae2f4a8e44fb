# Put into llama.cpp's build by CMAKE_PROJECT_INCLUDE: its library of command-line helpers is half of the build,
# and nothing here uses it. A plain -D cannot say so: llama-cpp-python's own CMake file forces it on.
set(LLAMA_BUILD_COMMON OFF)
