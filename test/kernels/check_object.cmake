# Fails when OBJECT defines anything but its table that the linker could give to other files, or
# take from them: code for newer processors would then run on all.
execute_process(COMMAND ${NM} --defined-only --extern-only ${OBJECT}
                OUTPUT_VARIABLE symbols RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT symbols MATCHES "${TABLE}")
  message(FATAL_ERROR "no ${TABLE} in ${OBJECT}:\n${symbols}")
endif()
string(REGEX MATCHALL "[^\n]+" lines "${symbols}")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "${TABLE}")
    message(SEND_ERROR "defined for others too: ${line}")
  endif()
endforeach()
