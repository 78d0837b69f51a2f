# muster_library(NAME SOURCES ... [PUBLIC ...] [PRIVATE ...]): a static library muster_NAME with the
# alias muster::NAME, our warnings, and includes from the root of the tree.

add_library(muster_options INTERFACE)
target_compile_features(muster_options INTERFACE cxx_std_20)
target_compile_options(muster_options INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(MUSTER_WERROR)
  target_compile_options(muster_options INTERFACE -Werror)
endif()
if(MUSTER_THREAD_SAFETY)
  target_compile_options(muster_options INTERFACE -Wthread-safety)
endif()
if(MUSTER_SANITIZE)
  target_compile_options(muster_options INTERFACE -fsanitize=${MUSTER_SANITIZE}
                                                  -fno-omit-frame-pointer)
  target_link_options(muster_options INTERFACE -fsanitize=${MUSTER_SANITIZE})
endif()

function(muster_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(muster_${name} STATIC ${ARG_SOURCES})
  add_library(muster::${name} ALIAS muster_${name})
  target_include_directories(muster_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(muster_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} muster_options)
  target_compile_features(muster_${name} PUBLIC cxx_std_20)
endfunction()

# muster_test(NAME LABEL unit|sim|integration SOURCES ... LIBRARIES ...): a Catch2 program.
function(muster_test name)
  cmake_parse_arguments(ARG "" "LABEL" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} muster_catch_main muster_options)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  add_test(NAME ${name} COMMAND ${name} --durations yes)
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT 300)
endfunction()
