// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the tests: every method of the test classes without arguments that is not private, each in a
 * thread of its own, with a limit. An argument selects tests whose names contain it.
 */
final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String wanted = arguments.length == 0 ? "" : arguments[0];
        int passed = 0;
        int failed = 0;
        for (Class<?> type : TESTS) {
            for (Method method : type.getDeclaredMethods()) {
                String name = type.getSimpleName() + "." + method.getName();
                boolean isTest = method.getParameterCount() == 0 && !method.isSynthetic()
                        && !Modifier.isPrivate(method.getModifiers())
                        && !Modifier.isStatic(method.getModifiers());
                if (!isTest || !name.contains(wanted)) {
                    continue;
                }
                Throwable failure = run(type, method);
                System.out.println((failure == null ? "ok      " : "FAILED  ") + name);
                if (failure != null) {
                    failure.printStackTrace(System.out);
                    failed++;
                } else {
                    passed++;
                }
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 && passed > 0 ? 0 : 1);
    }

    private static Throwable run(Class<?> type, Method method) throws Exception {
        FutureTask<Object> task = new FutureTask<>(() -> {
            Object test = type.getDeclaredConstructor().newInstance();
            return method.invoke(test);
        });
        Thread thread = Thread.ofPlatform().daemon().name(method.getName()).start(task);
        try {
            task.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return null;
        } catch (TimeoutException late) {
            AssertionError failure = new AssertionError("not done within " + LIMIT_SECONDS + " s, at:");
            failure.setStackTrace(thread.getStackTrace());
            return failure;
        } catch (Exception failure) {
            return failure.getCause();
        }
    }

    private static final List<Class<?>> TESTS = List.of(ChannelTest.class, ViewTest.class,
            DirectionLockTest.class, YieldsTest.class, WaitTest.class, AllocationTest.class, SessionTest.class, LoopTest.class, ByteStreamTest.class,
            LinkTest.class, ConnectionTest.class, CallsTest.class, LossyTest.class, ShmipcTest.class, StopTest.class, ProcessTest.class);
    private static final long LIMIT_SECONDS = 120;
}
